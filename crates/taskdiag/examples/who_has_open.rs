//! Prints the processes that have files open below a directory. `cargo run --example who_has_open
//! -- /var/log`

use taskdiag::files::Files;
use taskdiag::{Groups, Request};

fn main() -> Result<(), taskdiag::Error> {
    let below = std::env::args().nth(1).unwrap_or_else(|| String::from("/dev"));
    // Without root, the files of other users are not in the answer, and `gaps` reports that.
    let snapshot = taskdiag::query(&Request::all(Groups::BASE | Groups::FD))?;
    let files = Files::new(&snapshot);
    for owner in files.owners() {
        for file in files.of(owner) {
            let Some(path) = file.path.as_ref().map(|p| String::from_utf8_lossy(p.bytes)) else {
                continue;
            };
            if path.starts_with(&below) {
                let fd = file.fd().map_or(String::from("-"), |fd| fd.raw.fd.to_string());
                println!("{:>8} {fd:>4} {path}", owner.row.view.pid());
            }
        }
    }
    println!("files of {} processes are not known", files.gaps().len());
    Ok(())
}
