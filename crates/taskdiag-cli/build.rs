//! Links what walks up the stack (for the report of a panic) into the program, where the compiler has it as
//! an archive: the shared library takes a tenth of the start of a short command to find and map.

use std::path::Path;
use std::process::Command;
use std::{env, str};

const ARCHIVE: &str = "libgcc_eh.a";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let var = |name| env::var(name).unwrap_or_default();
    let native = var("HOST") == var("TARGET") && var("CARGO_CFG_TARGET_ENV") == "gnu";
    let asked = Command::new("cc").arg(format!("-print-file-name={ARCHIVE}")).output();
    if let (true, Ok(said)) = (native, asked) {
        // A compiler that has none says the bare name.
        let path = Path::new(str::from_utf8(&said.stdout).unwrap_or_default().trim());
        if let (true, Some(directory)) = (path.is_absolute() && path.exists(), path.parent()) {
            println!("cargo:rustc-link-search=native={}", directory.display());
            println!("cargo:rustc-link-lib=static=gcc_eh");
        }
    }
}
