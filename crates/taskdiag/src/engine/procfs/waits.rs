//! WAIT: what a task waits for, and since when, from the files `sched`, `syscall`, `wchan` and
//! `status`, and sometimes from the link to an open file.
//!
//! The files are read at different moments. The first and the last file show how often the task has
//! left a CPU. If the counts are equal, it has slept all the time, and all files are about one
//! wait.

use std::ffi::CString;
use std::os::fd::AsFd;

use rustix::io::Errno;
use taskdiag_wire::{OwnerHow, RanBy, Wait, WaitKind};

use super::clock::TICK_NS;
use super::parse::{self, SleepText, SyscallText, set};
use super::path::TaskDir;
use super::stop::Stop;
use super::worker::Worker;
use crate::engine::waits;

fn of_kind(kind: WaitKind, state: u8) -> Wait {
    let mut wait = Wait::new();
    set!(wait, Wait.kind, Some(kind as u32));
    set!(wait, Wait.flags, Some(0));
    set!(wait, Wait.owner_how, Some(OwnerHow::NotLookedUp as u32));
    set!(wait, Wait.state, Some(state));
    wait
}

impl Worker<'_> {
    fn sleep_text(&mut self, mut at: TaskDir<'_>) -> Result<SleepText, Stop> {
        match self.reader.file(at.dir, at.path.file("status")) {
            Ok(text) => Ok(parse::sleep(text)),
            Err(e) => Err(self.meaning(at, e)),
        }
    }

    pub(super) fn wait(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        let sched = match self.reader.file(at.dir, at.path.file("sched")) {
            Ok(text) => parse::sched(text),
            // Kernels before 6.15 may be built without it.
            Err(Errno::NOENT) => parse::SchedText::default(),
            Err(e) => return Err(self.meaning(at, e)),
        };
        let before = match sched.switches {
            Some(n) => Some(n),
            None => self.sleep_text(at)?.switches,
        };
        let call = match self.reader.file(at.dir, at.path.file("syscall")) {
            Ok(text) => parse::syscall(text),
            Err(e) => return Err(self.meaning(at, e)),
        };
        let mut wait = of_kind(WaitKind::Runnable, b'R');
        if call != Some(SyscallText::Running) {
            wait = self.sleeping(at, call, before)?;
        }
        if wait.state == b'R' {
            let now = self.run.sched_clock.map(|c| c.boot_ns);
            set!(wait, Wait.last_ran_ns, now);
            set!(wait, Wait.ran_error_ns, now.map(|_| TICK_NS));
            set!(wait, Wait.ran_by, now.map(|_| RanBy::Now as u32));
        } else if let (Some(clock), Some(ns)) = (self.run.sched_clock, sched.exec_start_ns) {
            clock.put(&mut wait, ns);
        }
        self.out.put(&wait);
        Ok(())
    }

    /// WAIT of a task. `before` is how often the task had left a CPU at the first look. If it has
    /// run since then, the record says that it runs.
    fn sleeping(
        &mut self,
        mut at: TaskDir<'_>,
        call: Option<SyscallText>,
        before: Option<u64>,
    ) -> Result<Wait, Stop> {
        let mut function = [0; 40];
        match self.reader.file(at.dir, at.path.file("wchan")) {
            Ok(b"0") => {}
            Ok(text) => {
                let len = text.len().min(function.len() - 1);
                function[..len].copy_from_slice(&text[..len]);
            }
            Err(e) => return Err(self.meaning(at, e)),
        }
        let mut wait = of_kind(WaitKind::Other, b'S');
        if let Some(call) = call {
            call.put(&mut wait);
        }
        set!(wait, Wait.function, (function[0] != 0).then_some(function));
        let target = waits::descriptor(&wait).and_then(|fd| self.link_of(at, fd));
        let now = self.sleep_text(at)?;
        let has_slept = now.switches.is_some() && now.switches == before;
        let (Some(state), true) = (now.state, has_slept && now.state != Some(b'R')) else {
            return Ok(of_kind(WaitKind::Runnable, b'R'));
        };
        if matches!(state, b'Z' | b'X') {
            return Ok(of_kind(WaitKind::Ended, state));
        }
        wait.state = state;
        set!(wait, Wait.switches, before);
        if let (b't', Some(tracer)) = (state, now.tracer.filter(|t| *t != 0)) {
            set!(wait, Wait.owner_how, Some(OwnerHow::Tracer as u32));
            set!(wait, Wait.owner_tid, Some(tracer));
        }
        waits::complete(&mut wait, at.tgid);
        if let Some(target) = target {
            waits::set_by_link(&mut wait, &target);
        }
        Ok(wait)
    }

    /// The target of the link to an open file.
    fn link_of(&mut self, mut at: TaskDir<'_>, fd: u32) -> Option<Vec<u8>> {
        let dir = self.reader.open_path(at.dir, at.path.file("fd")).ok()?;
        self.reader.syscalls += 1; // close
        let name = CString::new(fd.to_string()).expect("digits");
        self.reader.link(dir.as_fd(), &name).ok().map(<[u8]>::to_vec)
    }
}
