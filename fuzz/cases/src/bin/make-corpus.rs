//! `make-corpus DIR`: write the seeds of every target to DIR/<target>/, for the fuzzer to start
//! from.

use std::path::PathBuf;
use std::{env, fs};

use taskdiag_fuzz_cases::{TARGETS, seeds};

fn main() -> std::io::Result<()> {
    let root = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| "fuzz/corpus".into()));
    for (target, _) in TARGETS {
        let dir = root.join(target);
        fs::create_dir_all(&dir)?;
        for (name, bytes) in seeds::of(target) {
            fs::write(dir.join(format!("seed-{name}")), bytes)?;
        }
        println!("{target}");
    }
    Ok(())
}
