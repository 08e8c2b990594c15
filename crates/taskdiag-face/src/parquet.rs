//! How Parquet files are written, and the errors of the libraries for Arrow and Parquet.

use std::io;

use arrow_schema::ArrowError;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};

/// Converts an error of the libraries. They wrap errors of the file, which have to be unwrapped,
/// because a closed pipe is not a failure.
pub fn failed(e: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&e);
    while let Some(e) = cause {
        if let Some(io) = e.downcast_ref::<io::Error>() {
            return match io.raw_os_error() {
                Some(n) => io::Error::from_raw_os_error(n),
                None => io::Error::new(io.kind(), io.to_string()),
            };
        }
        cause = match e.downcast_ref::<ArrowError>() {
            Some(ArrowError::IoError(_, io)) => Some(io),
            _ => e.source(),
        };
    }
    io::Error::other(e)
}

/// How Parquet files are written.
pub fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_created_by(concat!("taskdiag ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
}
