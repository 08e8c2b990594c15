//! Save an answer and read it again, as another machine may do later. `cargo run --example save --
//! now.tdg`

use std::fs::File;
use std::io::{BufReader, BufWriter};

use taskdiag::{Error, Groups, Request, Snapshot};

fn main() -> Result<(), Error> {
    let temporary = std::env::temp_dir().join("taskdiag-example.tdg");
    let path = std::env::args_os().nth(1).map_or(temporary, Into::into);
    let io = |what: &'static str| move |e: std::io::Error| Error::io(what, e);
    let snapshot = taskdiag::query(&Request::all(Groups::BASE | Groups::STAT))?;
    let file = File::create(&path).map_err(io("creating the file"))?;
    snapshot.write_to(BufWriter::new(file)).map_err(io("writing the answer"))?;
    // A file that is cut is an error, never a short list.
    let file = File::open(&path).map_err(io("opening the file"))?;
    let again = Snapshot::read_from(BufReader::new(file))?;
    println!("{} tasks in {}", again.tasks().len(), path.display());
    Ok(())
}
