//! `taskdiag engines`: who can answer what here, and why not.

use taskdiag::{Engine, EngineId, Error, Group, Support};

use crate::exit::Exit;
use crate::output::{Sink, json};

type Survey = Vec<(EngineId, Result<Support, Error>)>;

fn survey() -> Survey {
    let procfs = taskdiag::engine::procfs::Procfs::new().map(|e| e.support());
    vec![(EngineId::Procfs, procfs)]
}

/// What an engine says about a group: yes, partly, no.
fn mark(support: &Result<Support, Error>, g: Group) -> &'static str {
    match support {
        Err(_) => "-",
        Ok(s) => match (s.groups.has(g), s.notes.iter().any(|(n, _)| *n == g)) {
            (true, true) => "partly",
            (true, false) => "yes",
            (false, _) => "-",
        },
    }
}

/// Run it.
pub fn run(as_json: bool) -> Result<(), Exit> {
    let survey = survey();
    let mut sink = Sink::stdout();
    if as_json {
        write_json(sink.buf(), &survey)
    } else {
        write_text(sink.buf(), &survey)
    }
    Ok(sink.finish()?)
}

fn write_text(out: &mut Vec<u8>, survey: &Survey) {
    let mut line = |text: String| {
        out.extend_from_slice(text.trim_end().as_bytes());
        out.push(b'\n');
    };
    let names: String = survey.iter().map(|(e, _)| format!("{:<8}", e.name())).collect();
    line(format!("{:<10}{names}", "GROUP"));
    for g in Group::ALL {
        let marks: String = survey.iter().map(|(_, s)| format!("{:<8}", mark(s, *g))).collect();
        line(format!("{:<10}{marks}", g.name()));
    }
    for (engine, support) in survey {
        match support {
            Err(e) => line(format!("\n{engine}: {e}")),
            Ok(s) => {
                let strategies: Vec<&str> = s.strategies.iter().map(|s| s.name()).collect();
                line(format!("\n{engine}: strategies {}", strategies.join(", ")));
                for (g, why) in &s.notes {
                    line(format!("  {g}: {why}"));
                }
            }
        }
    }
}

fn write_json(out: &mut Vec<u8>, survey: &Survey) {
    for (i, (engine, support)) in survey.iter().enumerate() {
        out.extend_from_slice(if i == 0 { b"[\n{\"engine\":" } else { b",\n{\"engine\":" });
        json::text(out, engine.name().as_bytes());
        match support {
            Err(e) => {
                out.extend_from_slice(b",\"error\":");
                json::text(out, e.to_string().as_bytes());
            }
            Ok(s) => {
                out.extend_from_slice(b",\"strategies\":[");
                for (i, s) in s.strategies.iter().enumerate() {
                    out.extend_from_slice(if i == 0 { b"" } else { b"," });
                    json::text(out, s.name().as_bytes());
                }
                out.extend_from_slice(b"],\"groups\":{");
                for (i, g) in Group::ALL.iter().enumerate() {
                    out.extend_from_slice(if i == 0 { b"" } else { b"," });
                    json::text(out, g.name().as_bytes());
                    out.push(b':');
                    json::text(out, mark(support, *g).as_bytes());
                }
                out.extend_from_slice(b"},\"notes\":[");
                for (i, (g, why)) in s.notes.iter().enumerate() {
                    out.extend_from_slice(if i == 0 { b"{" } else { b",{" });
                    json::text(out, g.name().as_bytes());
                    out.push(b':');
                    json::text(out, why.as_bytes());
                    out.push(b'}');
                }
                out.push(b']');
            }
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"\n]\n");
}
