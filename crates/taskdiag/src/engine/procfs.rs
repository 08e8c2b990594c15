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
    fn run(&mut self, _req: &Request) -> Result<Answer, Error> {
        todo!()
    }
}
