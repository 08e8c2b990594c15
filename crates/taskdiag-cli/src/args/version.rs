//! The output of `taskdiag --version`: everything about the program that a report of a fault needs.

/// A word for the list, if the feature is built in.
macro_rules! if_built {
    ($feature:literal) => {
        if cfg!(feature = $feature) { concat!(" ", $feature) } else { "" }
    };
}

/// The texts as one, at compile time.
macro_rules! joined {
    ($($text:expr),* $(,)?) => {{
        const PARTS: &[&str] = &[$($text),*];
        const LENGTH: usize = {
            let (mut sum, mut i) = (0, 0);
            while i < PARTS.len() {
                sum += PARTS[i].len();
                i += 1;
            }
            sum
        };
        const BYTES: [u8; LENGTH] = {
            let (mut out, mut at, mut i) = ([0; LENGTH], 0, 0);
            while i < PARTS.len() {
                let part = PARTS[i].as_bytes();
                let mut k = 0;
                while k < part.len() {
                    out[at] = part[k];
                    (at, k) = (at + 1, k + 1);
                }
                i += 1;
            }
            out
        };
        match std::str::from_utf8(&BYTES) {
            Ok(text) => text,
            Err(_) => env!("CARGO_PKG_VERSION"),
        }
    }};
}

/// Version, commit, features and engines.
pub const LONG: &str = joined!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("TASKDIAG_COMMIT"),
    "\nfeatures:",
    if_built!("arrow"),
    if_built!("export"),
    if_built!("record"),
    if_built!("top"),
    "\nengines: kernel bpf service procfs\nsystem: ",
    std::env::consts::ARCH,
    if cfg!(target_env = "musl") { " musl" } else { " gnu" },
);
