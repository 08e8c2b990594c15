//! The engines that one request, or a session of many requests, has opened.

use std::os::fd::RawFd;
use std::time::Duration;

use crate::engine::bpf::Bpf;
use crate::engine::kernel::Kernel;
use crate::engine::procfs::Procfs;
use crate::engine::service::Service;
use crate::engine::{Answer, Engine, EngineId};
use crate::error::Error;
use crate::request::Request;
use taskdiag_wire::AlignedBuf;

/// The open engines. They are not tried when they are opened, because the request itself is the
/// test, at its real size.
#[derive(Debug, Default)]
pub struct Engines {
    keep: bool,
    /// Files of /proc are closed after each answer, also if `keep` is set.
    without_files: bool,
    bpf: Option<Bpf>,
    kernel: Option<Kernel>,
    service: Option<Service>,
    procfs: Option<Procfs>,
    /// The time that procfs would take for the answer. `None`: it does not replace the service.
    procfs_takes: Option<Duration>,
}

impl Engines {
    /// Engines for a request that is repeated. They stay open, and programs stay loaded.
    pub fn kept() -> Engines {
        Engines { keep: true, ..Engines::default() }
    }

    /// These engines, without keeping files of /proc open.
    pub fn without_files(self) -> Engines {
        Engines { without_files: true, ..self }
    }

    /// Sets the time that procfs would take. procfs answers if the service does not.
    pub fn without_service_takes(&mut self, time: Duration) {
        self.procfs_takes = Some(time);
    }

    pub fn are_kept(&self) -> bool {
        self.keep
    }

    /// Lets one of them answer. If the request is about one process, `mappings` is the approximate
    /// number of its mappings.
    pub fn run(
        &mut self,
        engine: EngineId,
        mappings: Option<u64>,
        req: &Request,
    ) -> Result<Answer, Error> {
        if !self.keep {
            return match engine {
                EngineId::Bpf => Bpf::open(false, mappings.unwrap_or(0))?.run(req),
                EngineId::Kernel => Kernel::new()?.run(req),
                EngineId::Service => {
                    let mut service = Service::open(false);
                    self.procfs_takes.into_iter().for_each(|t| service.instead_of(t));
                    service.run(req)
                }
                EngineId::Procfs => Procfs::new()?.run(req),
            };
        }
        match engine {
            EngineId::Bpf => match &mut self.bpf {
                Some(bpf) => bpf.run(req),
                none => none.insert(Bpf::open(true, mappings.unwrap_or(0))?).run(req),
            },
            EngineId::Kernel => match &mut self.kernel {
                Some(kernel) => kernel.run(req),
                none => none.insert(Kernel::new()?).run(req),
            },
            EngineId::Service => {
                let service = self.service.get_or_insert_with(|| Service::open(true));
                self.procfs_takes.into_iter().for_each(|t| service.instead_of(t));
                service.run(req)
            }
            EngineId::Procfs if self.without_files => Procfs::new()?.run(req),
            EngineId::Procfs => match &mut self.procfs {
                Some(procfs) => procfs.run(req),
                none => none.insert(Procfs::new()?.keeping()).run(req),
            },
        }
    }

    /// The file descriptors that are open between two answers. The kernel engine has none.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let mut all = Vec::new();
        if let Some(bpf) = &self.bpf {
            bpf.descriptors(&mut all);
        }
        if let Some(service) = &self.service {
            service.descriptors(&mut all);
        }
        if let Some(procfs) = &self.procfs {
            procfs.descriptors(&mut all);
        }
        all
    }

    /// Returns the memory of an answer that is not needed any more, so that the next answer can use
    /// it.
    pub fn recycle(&mut self, memory: AlignedBuf) {
        match (&mut self.bpf, &mut self.service) {
            (Some(bpf), _) => bpf.recycle(memory),
            (None, Some(service)) => service.recycle(memory),
            (None, None) => {}
        }
    }
}
