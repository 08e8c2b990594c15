//! procfs engine, being written.
use crate::engine::*;
/// The engine that reads the text files of /proc.
pub struct Procfs {}
impl Procfs {
    /// On `/proc`.
    pub fn new() -> Result<Procfs, Error> {
        Ok(Procfs {})
    }
}
impl Engine for Procfs {
    fn id(&self) -> EngineId {
        EngineId::Procfs
    }
    fn support(&self) -> Support {
        Support { groups: Groups::NONE, strategies: vec![], notes: vec![] }
    }
    fn run(&mut self, req: &Request) -> Result<Answer, Error> {
        let mut w = taskdiag_wire::StreamWriter::new();
        w.info(&crate::engine::info::info(req));
        let syscalls = crate::engine::info::SYSCALLS;
        let cost = Cost { syscalls, ..Cost::default() };
        Ok(Answer { stream: w.finish(Default::default()), cost })
    }
}
