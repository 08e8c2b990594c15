//! Errors: a code, and a sentence for people.

use std::ffi::{CString, c_int};

use taskdiag::Error;

/// The codes, as in `taskdiag.h`.
pub mod code {
    use std::ffi::c_int;

    pub const OK: c_int = 0;
    pub const ARGUMENT: c_int = -1;
    pub const QUERY: c_int = -2;
    pub const TYPE: c_int = -3;
    pub const RANGE: c_int = -4;
    pub const UNAVAILABLE: c_int = -5;
    pub const UNSUPPORTED: c_int = -6;
    pub const SETTING: c_int = -7;
    pub const SYSTEM: c_int = -8;
    pub const STREAM: c_int = -9;
    pub const OTHER: c_int = -10;
    pub const INTERNAL: c_int = -11;
}

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    pub code: c_int,
    pub text: CString,
}

impl Failure {
    pub fn new(code: c_int, text: impl Into<String>) -> Failure {
        Failure { code, text: c_text(text.into()) }
    }
    /// A wrong argument of the program, which no text of a user can cause.
    pub fn argument(text: &str) -> Failure {
        Failure::new(code::ARGUMENT, text)
    }
    /// Words of a user that have no meaning here.
    pub fn query(text: impl Into<String>) -> Failure {
        Failure::new(code::QUERY, text)
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        let code = match e {
            Error::Unavailable { .. } => code::UNAVAILABLE,
            Error::Unsupported { .. } => code::UNSUPPORTED,
            Error::Setting(_) => code::SETTING,
            Error::Io { .. } => code::SYSTEM,
            Error::Stream(_) => code::STREAM,
            // The library may get more kinds of errors.
            _ => code::OTHER,
        };
        Failure::new(code, e.to_string())
    }
}

/// Text for C, which ends at a NUL. A NUL within the text is shown as U+FFFD.
pub fn c_text(text: String) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}
