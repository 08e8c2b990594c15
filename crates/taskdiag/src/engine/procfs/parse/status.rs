//! /proc/PID/status: CRED, STATM, the switches of SCHED, the pid chain of NS.

use taskdiag_wire::{Cred, Groups, Statm};

use super::{Fields, hex, number, set};

/// What a status file says. Reused from task to task, so that its lists allocate once.
#[derive(Clone, Debug, Default)]
pub struct StatusFile {
    /// CRED; filled when asked for.
    pub cred: Cred,
    /// Supplementary gids as `u32` in the host's byte order; filled with `cred`.
    pub gids: Vec<u8>,
    /// STATM; filled when asked for. No member is known of a task without memory.
    pub statm: Statm,
    /// Voluntary context switches of the thread; filled when SCHED is asked for.
    pub nvcsw: Option<u64>,
    /// Involuntary context switches of the thread; filled when SCHED is asked for.
    pub nivcsw: Option<u64>,
    /// Threads of the process; filled when SCHED is asked for.
    pub threads: Option<u32>,
    /// Ids in the nested pid namespaces as `u32` in the host's byte order; filled when NS is
    /// asked for. Empty: not known.
    pub nspid: Vec<u8>,
}

/// The process that a task belongs to, from its status file.
pub fn tgid(bytes: &[u8]) -> Option<u32> {
    lines(bytes, |b| b == b'T').find(|l| l.0 == b"Tgid").and_then(|l| Fields::new(l.1).u32())
}

/// Each complete line as its name and its value, the newline included; but not those whose first
/// byte is not wanted.
fn lines(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', bytes).filter_map(move |end| {
        let line = &bytes[start..=end];
        start = end + 1;
        if !wanted(line[0]) {
            return None;
        }
        // No name is longer than "nonvoluntary_ctxt_switches".
        let colon = line.iter().take(32).position(|b| *b == b':')?;
        Some((&line[..colon], &line[colon + 1..]))
    })
}

impl StatusFile {
    /// Forget the last task and take in this one's file, as far as `groups` need it.
    pub fn parse(&mut self, bytes: &[u8], groups: Groups) {
        self.cred = Cred::new();
        self.statm = Statm::new();
        (self.nvcsw, self.nivcsw, self.threads) = (None, None, None);
        self.gids.clear();
        self.nspid.clear();
        let cred = groups.contains(Groups::CRED);
        let statm = groups.contains(Groups::STATM);
        let sched = groups.contains(Groups::SCHED);
        let ns = groups.contains(Groups::NS);
        let wanted = |first| match first {
            b'V' | b'R' => statm,
            b'U' | b'G' | b'C' | b'S' => cred,
            b'N' => cred || ns,
            b'T' => cred || sched,
            b'v' | b'n' => sched,
            _ => false,
        };
        for (key, value) in lines(bytes, wanted) {
            match key {
                [b'V' | b'R', ..] => self.statm(key, value),
                b"Threads" if sched => self.threads = Fields::new(value).u32(),
                b"voluntary_ctxt_switches" => self.nvcsw = Fields::new(value).u64(),
                b"nonvoluntary_ctxt_switches" => self.nivcsw = Fields::new(value).u64(),
                b"NSpid" if ns => {
                    ids(value, &mut self.nspid);
                }
                _ if cred => self.cred(key, value),
                _ => {}
            }
        }
    }

    fn statm(&mut self, key: &[u8], value: &[u8]) {
        let m = &mut self.statm;
        let mut f = Fields::new(value);
        let kib = f.u64().filter(|_| f.next() == Some(b"kB"));
        let bytes = kib.and_then(|k| k.checked_mul(1024));
        match key {
            b"VmSize" => set!(m, Statm.size_bytes, bytes),
            b"VmPeak" => set!(m, Statm.peak_size_bytes, bytes),
            b"VmRSS" => set!(m, Statm.rss_bytes, bytes),
            b"RssAnon" => set!(m, Statm.rss_anon_bytes, bytes),
            b"RssFile" => set!(m, Statm.rss_file_bytes, bytes),
            b"RssShmem" => set!(m, Statm.rss_shmem_bytes, bytes),
            b"VmHWM" => set!(m, Statm.peak_rss_bytes, bytes),
            b"VmData" => set!(m, Statm.data_bytes, bytes),
            b"VmStk" => set!(m, Statm.stack_bytes, bytes),
            b"VmExe" => set!(m, Statm.text_bytes, bytes),
            b"VmLib" => set!(m, Statm.lib_bytes, bytes),
            b"VmLck" => set!(m, Statm.locked_bytes, bytes),
            b"VmPin" => set!(m, Statm.pinned_bytes, bytes),
            b"VmPTE" => set!(m, Statm.page_tables_bytes, bytes),
            b"VmSwap" => set!(m, Statm.swap_bytes, bytes),
            _ => {}
        }
    }

    fn cred(&mut self, key: &[u8], value: &[u8]) {
        let c = &mut self.cred;
        let mut f = Fields::new(value);
        match key {
            b"Uid" => {
                set!(c, Cred.uid, f.u32());
                set!(c, Cred.euid, f.u32());
                set!(c, Cred.suid, f.u32());
                set!(c, Cred.fsuid, f.u32());
            }
            b"Gid" => {
                set!(c, Cred.gid, f.u32());
                set!(c, Cred.egid, f.u32());
                set!(c, Cred.sgid, f.u32());
                set!(c, Cred.fsgid, f.u32());
            }
            // The number and the list must be of one line.
            b"Groups" if c.ngroups().is_none() => {
                let whole = ids(value, &mut self.gids);
                let n = u32::try_from(self.gids.len() / 4).ok();
                set!(c, Cred.ngroups, n.filter(|_| whole));
            }
            b"TracerPid" => set!(c, Cred.tracer_pid, f.u32()),
            b"NoNewPrivs" => set!(c, Cred.no_new_privs, f.u32()),
            b"Seccomp" => set!(c, Cred.seccomp, f.u32()),
            b"CapInh" => set!(c, Cred.cap_inheritable, f.next().and_then(hex)),
            b"CapPrm" => set!(c, Cred.cap_permitted, f.next().and_then(hex)),
            b"CapEff" => set!(c, Cred.cap_effective, f.next().and_then(hex)),
            b"CapBnd" => set!(c, Cred.cap_bounding, f.next().and_then(hex)),
            b"CapAmb" => set!(c, Cred.cap_ambient, f.next().and_then(hex)),
            _ => {}
        }
    }
}

/// A list of ids. `false`, and no list, where one of the words is no id.
fn ids(value: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let mut f = Fields::new(value);
    while let Some(word) = f.next() {
        let Some(id) = number(word).and_then(|n| u32::try_from(n).ok()) else {
            out.clear();
            return false;
        };
        out.extend_from_slice(&id.to_ne_bytes());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"Name:\tx\\nUid:\t9\nUmask:\t0022\nState:\tR (running)\nTgid:\t5065\nNgid:\t0\n\
        Pid:\t5066\nPPid:\t5057\nTracerPid:\t77\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t4294967295\nFDSize:\t256\n\
        Groups:\t4 24 1000 \nNSpid:\t5066\t12\t1\nVmPeak:\t    3061 kB\nVmSize:\t    3060 kB\n\
        VmLck:\t       1 kB\nVmPin:\t       2 kB\nVmHWM:\t    1761 kB\nVmRSS:\t    1760 kB\n\
        RssAnon:\t     112 kB\nRssFile:\t    1648 kB\nRssShmem:\t       3 kB\nVmData:\t     360 kB\n\
        VmStk:\t     132 kB\nVmExe:\t      20 kB\nVmLib:\t    1528 kB\nVmPTE:\t      48 kB\n\
        VmSwap:\t       4 kB\nThreads:\t2\nSigQ:\t0/96365\nCapInh:\t0000000000000001\n\
        CapPrm:\t000001fffeffffff\nCapEff:\t0000000000000002\nCapBnd:\t0000000000000003\n\
        CapAmb:\t0000000000000004\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t9\n\
        voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
    const WANT: Groups = Groups::CRED.union(Groups::STATM).union(Groups::SCHED).union(Groups::NS);

    fn parse(bytes: &[u8], groups: Groups) -> StatusFile {
        let mut s = StatusFile::default();
        s.parse(bytes, groups);
        s
    }
    fn words(bytes: &[u8]) -> Vec<u32> {
        bytes.chunks_exact(4).map(|c| u32::from_ne_bytes(c.try_into().unwrap())).collect()
    }

    #[test]
    fn every_member() {
        let s = parse(TEXT, WANT);
        let c = s.cred;
        assert_eq!((c.uid, c.euid, c.suid, c.fsuid), (1, 2, 3, 4));
        assert_eq!((c.gid, c.egid, c.sgid, c.fsgid), (5, 6, 7, u32::MAX));
        assert_eq!((c.tracer_pid, c.no_new_privs, c.seccomp), (77, 1, 2));
        assert_eq!((c.cap_inheritable, c.cap_permitted), (1, 0x1fffeffffff));
        assert_eq!((c.cap_effective, c.cap_bounding, c.cap_ambient), (2, 3, 4));
        assert_eq!((c.ngroups, words(&s.gids)), (3, vec![4, 24, 1000]));
        // Only securebits is not in the file.
        assert_eq!(c.valid, Cred::ALL_VALID & !super::super::bit(Cred::MEMBERS, "securebits"));
        let m = s.statm;
        let kib = [
            m.size_bytes,
            m.peak_size_bytes,
            m.rss_bytes,
            m.rss_anon_bytes,
            m.rss_file_bytes,
            m.rss_shmem_bytes,
            m.peak_rss_bytes,
            m.data_bytes,
            m.stack_bytes,
            m.text_bytes,
            m.lib_bytes,
            m.locked_bytes,
            m.pinned_bytes,
            m.page_tables_bytes,
            m.swap_bytes,
        ]
        .map(|b| b / 1024);
        assert_eq!(kib, [3060, 3061, 1760, 112, 1648, 3, 1761, 360, 132, 20, 1528, 1, 2, 48, 4]);
        assert_eq!(m.valid, Statm::ALL_VALID);
        assert_eq!((s.nvcsw, s.nivcsw, s.threads), (Some(150), Some(545), Some(2)));
        assert_eq!(words(&s.nspid), [5066, 12, 1]);
        assert_eq!(tgid(TEXT), Some(5065));
    }

    #[test]
    fn only_what_is_asked() {
        let s = parse(TEXT, Groups::STATM);
        assert_eq!((s.cred.valid, s.statm.valid), (0, Statm::ALL_VALID));
        assert_eq!((s.nvcsw, s.gids.len(), s.nspid.len()), (None, 0, 0));
        let s = parse(TEXT, Groups::CRED);
        assert_eq!((s.statm.valid, s.threads), (0, None));
    }

    #[test]
    fn without_memory_or_groups() {
        let s = parse(b"Name:\tkthreadd\nGroups:\t \nKthread:\t1\nThreads:\t1\n", WANT);
        assert_eq!(s.statm.valid, 0);
        assert_eq!(s.cred.ngroups(), Some(0));
        assert_eq!(s.cred.uid(), None);
    }

    #[test]
    fn reuse_forgets() {
        let mut s = parse(TEXT, WANT);
        s.parse(b"", WANT);
        assert_eq!((s.cred, s.statm), (Cred::new(), Statm::new()));
        assert!(s.gids.is_empty() && s.nspid.is_empty() && s.nvcsw.is_none());
    }

    #[test]
    fn cut_anywhere() {
        let full = parse(TEXT, WANT);
        for n in 0..TEXT.len() {
            let s = parse(&TEXT[..n], WANT);
            assert!(s.cred.uid().is_none_or(|v| v == full.cred.uid), "cut at {n}");
            assert!(s.cred.cap_permitted().is_none_or(|v| v == full.cred.cap_permitted));
            assert!(s.statm.rss_bytes().is_none_or(|v| v == full.statm.rss_bytes));
            assert!(s.nvcsw.is_none_or(|v| v == 150) && s.nivcsw.is_none());
            assert!(s.cred.ngroups().is_none_or(|v| v == 3));
        }
    }

    #[test]
    fn garbage() {
        let text = b"\n:\n::\nUid:\nUid:\t-1 99999999999\nVmRSS:\t5 MB\nVmSize:\t18446744073709551615 kB\n\
            CapInh:\tzz\nSeccomp:\nGroups:\t1 x 2\n";
        let s = parse(text, WANT);
        assert_eq!((s.cred.uid(), s.cred.euid()), (None, None));
        assert_eq!(s.statm.valid, 0);
        assert_eq!((s.cred.ngroups(), s.gids.len()), (None, 0));
        assert_eq!(tgid(b"Tgid:\t5"), None);
        assert_eq!(tgid(&[0xff; 100]), None);
    }
}
