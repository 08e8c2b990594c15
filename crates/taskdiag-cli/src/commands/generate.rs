//! Man page and completions, made from the option table, the field table and the exit codes.

use crate::args;
use crate::exit::Exit;
use crate::output::sink;

/// Run it.
pub fn run(what: &str) -> Result<(), Exit> {
    use clap_complete::shells;
    let mut out = Vec::new();
    let mut command = args::command();
    match what {
        "bash" => clap_complete::generate(shells::Bash, &mut command, "taskdiag", &mut out),
        "zsh" => clap_complete::generate(shells::Zsh, &mut command, "taskdiag", &mut out),
        "fish" => clap_complete::generate(shells::Fish, &mut command, "taskdiag", &mut out),
        _ => clap_mangen::Man::new(command).render(&mut out)?,
    }
    sink::write_all(&out)?;
    Ok(())
}
