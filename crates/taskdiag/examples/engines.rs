//! Shows which engine answers here, and makes the same request to each engine. `cargo run --example
//! engines`

use taskdiag::{Choice, EngineId, Groups, Request};

fn main() -> Result<(), taskdiag::Error> {
    let request = Request::all(Groups::BASE | Groups::STATM);
    for (engine, support) in taskdiag::engine::auto::survey()? {
        match support {
            Ok(support) => println!("{engine}: {}", support.groups),
            Err(e) => println!("{e}"),
        }
    }
    for engine in [EngineId::Bpf, EngineId::Procfs] {
        match taskdiag::query_with(&request, Choice::Only(engine)) {
            Ok(answer) => println!("{engine}: {} in {:?}", answer.tasks().len(), answer.took()),
            Err(e) => println!("{e}"),
        }
    }
    let answer = taskdiag::query(&request)?;
    for served in answer.served() {
        println!("chosen: {}, because {}", served.engine, served.why);
    }
    Ok(())
}
