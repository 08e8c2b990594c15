//! `taskdiag engines`: which engine can answer which groups here, why others cannot, and which one
//! would be chosen.

use clap::Command;
use taskdiag::engine::auto;
use taskdiag::{EngineId, Error, Group, Groups, Host, Request, Support};

use crate::args;
use crate::exit::{self, Exit};
use crate::output::{Sink, json};

/// The facts about this machine.
struct MachineFacts {
    survey: Vec<(EngineId, Result<Support, Error>)>,
    /// For each group, the engine that would answer a request for it alone, and why.
    chosen: Vec<(Group, Option<(EngineId, String)>)>,
    /// Remarks about all answers here.
    remarks: Vec<String>,
}

/// Whether an engine provides a group: yes, partly (a note says what is missing), or no.
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

impl MachineFacts {
    fn gather() -> Result<MachineFacts, Error> {
        let survey = auto::survey()?;
        let supported = |s: &Result<Support, Error>| s.as_ref().map_or(Groups::NONE, |s| s.groups);
        let any = survey.iter().fold(Groups::NONE, |g, (_, s)| g | supported(s));
        let choose = |g: Group| {
            let mut plan = auto::explain(&Request::all(g.into()))?;
            plan.retain(|(groups, ..)| any.has(g) && groups.has(g));
            Ok::<_, Error>((g, plan.pop().map(|(_, engine, why)| (engine, why))))
        };
        let chosen = Group::ALL.iter().map(|g| choose(*g)).collect::<Result<_, Error>>()?;
        Ok(MachineFacts { survey, chosen, remarks: auto::remarks()? })
    }

    fn write_text(&self, out: &mut Vec<u8>) {
        let mut line = |text: String| {
            out.extend_from_slice(exit::without_numbers(text.trim_end()).as_bytes());
            out.push(b'\n');
        };
        let names: String = self.survey.iter().map(|(e, _)| format!("{:<8}", e.name())).collect();
        line(format!("{:<10}{names}{:<8} BECAUSE", "GROUP", "CHOICE"));
        for (g, chosen) in &self.chosen {
            let marks: String =
                self.survey.iter().map(|(_, s)| format!("{:<8}", mark(s, *g))).collect();
            let (engine, why) = match chosen {
                Some((e, why)) => (e.name(), why.as_str()),
                None => ("none", "no engine here provides it"),
            };
            line(format!("{:<10}{marks}{engine:<8} {why}", g.name()));
        }
        for (engine, support) in &self.survey {
            match support {
                // The error names the engine itself.
                Err(e) => line(format!("\n{e}")),
                Ok(s) => {
                    let strategies: Vec<&str> = s.strategies.iter().map(|s| s.name()).collect();
                    line(format!("\n{engine}: {}", strategies.join(", ")));
                    for (g, why) in &s.notes {
                        line(format!("  {g}: {why}"));
                    }
                }
            }
        }
        for remark in &self.remarks {
            line(format!("\n{remark}"));
        }
        line(String::from(
            "\nCHOICE is the engine that would answer a request for this group alone, about all processes. Add --stats to a \
             command to see which engine it used.",
        ));
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"host\":{");
        let host = Host::here();
        let boot_id = host.boot_id.map(|id| id.to_string().into_bytes());
        let facts = [
            ("name", host.name),
            ("kernel", host.kernel),
            ("arch", host.arch),
            ("boot_id", boot_id),
        ];
        for (i, (key, value)) in facts.into_iter().enumerate() {
            out.extend_from_slice(if i == 0 { b"" } else { b"," });
            json::text(out, key.as_bytes());
            out.push(b':');
            match value {
                Some(value) => json::text(out, &value),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.extend_from_slice(b"},\n\"engines\":");
        json::list(out, self.survey.iter(), |out, (engine, support)| {
            out.extend_from_slice(b"\n{\"engine\":");
            json::text(out, engine.name().as_bytes());
            match support {
                Err(e) => {
                    out.extend_from_slice(b",\"error\":");
                    json::text(out, exit::without_numbers(&e.to_string()).as_bytes());
                }
                Ok(s) => {
                    out.extend_from_slice(b",\"strategies\":");
                    let names = s.strategies.iter().map(|s| s.name());
                    json::list(out, names, |out, n| json::text(out, n.as_bytes()));
                    out.extend_from_slice(b",\"groups\":");
                    json::list(out, s.groups.iter(), |out, g| json::text(out, g.name().as_bytes()));
                    out.extend_from_slice(b",\"notes\":");
                    json::list(out, s.notes.iter(), |out, (g, why)| {
                        out.extend_from_slice(b"{\"group\":");
                        json::text(out, g.name().as_bytes());
                        out.extend_from_slice(b",\"note\":");
                        json::text(out, why.as_bytes());
                        out.push(b'}');
                    });
                }
            }
            out.push(b'}');
        });
        out.extend_from_slice(b",\n\"choice\":");
        json::list(out, self.chosen.iter(), |out, (g, chosen)| {
            out.extend_from_slice(b"\n{\"group\":");
            json::text(out, g.name().as_bytes());
            out.extend_from_slice(b",\"engine\":");
            match chosen {
                Some((engine, why)) => {
                    json::text(out, engine.name().as_bytes());
                    out.extend_from_slice(b",\"because\":");
                    json::text(out, why.as_bytes());
                }
                None => out.extend_from_slice(b"null"),
            }
            out.push(b'}');
        });
        out.extend_from_slice(b",\n\"remarks\":");
        json::list(out, self.remarks.iter(), |out, r| json::text(out, r.as_bytes()));
        out.extend_from_slice(b"}\n");
    }
}

/// The options.
pub fn command() -> Command {
    Command::new("engines")
        .about("Show which source (BPF, /proc, service) is used here, and why")
        .arg(args::json())
        .after_help(exit::examples(&[
            ("taskdiag engines", "show why BPF is used here, or not"),
            ("sudo taskdiag engines", "show what root could use"),
        ]))
}

/// Run it.
pub fn run(as_json: bool) -> Result<(), Exit> {
    let facts = MachineFacts::gather()?;
    let mut sink = Sink::stdout();
    if as_json {
        facts.write_json(sink.buf())
    } else {
        facts.write_text(sink.buf())
    }
    Ok(sink.finish()?)
}
