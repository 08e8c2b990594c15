//! Parses /proc/PID/status into CRED, STATM, SIGNALS, the context switches of SCHED, and the chain
//! of pids of NS.

use taskdiag_wire::{Cred, Groups, Settings, Signals, Statm};

use super::{Fields, hex, number, set};

/// The content of a status file. It is reused from task to task, so that its lists allocate once.
#[derive(Clone, Debug, Default)]
pub struct StatusFile {
    /// CRED. It is filled if it was requested.
    pub cred: Cred,
    /// The supplementary gids as `u32` in the host's byte order. They are filled with `cred`.
    pub gids: Vec<u8>,
    /// STATM. It is filled if it was requested. A task without memory has no known member.
    pub statm: Statm,
    /// Bytes of pages that are locked into memory. They are filled if STAT was requested.
    pub locked_bytes: Option<u64>,
    /// Bytes of swapped anonymous memory. They are filled if SWAP was requested.
    pub swap_bytes: Option<u64>,
    /// The size of the table of open files. It is always filled.
    pub fd_size: Option<u32>,
    /// SIGNALS. It is filled if it was requested.
    pub signals: Signals,
    /// SETTINGS, without the priority of I/O. It is filled if it was requested, with the next two.
    pub settings: Settings,
    /// The processors that it may run on, as [`A_CPUS`](taskdiag_wire::A_CPUS). Empty: not known.
    pub cpus: Vec<u8>,
    /// The NUMA nodes that it may have memory of.
    pub mems: Vec<u8>,
    /// Voluntary context switches of the thread. They are filled if SCHED was requested.
    pub nvcsw: Option<u64>,
    /// Involuntary context switches of the thread. They are filled if SCHED was requested.
    pub nivcsw: Option<u64>,
    /// The number of threads of the process. It is filled if SCHED was requested.
    pub threads: Option<u32>,
    /// The ids in the nested pid namespaces, as `u32` in the host's byte order. They are filled if
    /// NS was requested, and are empty if they are not known.
    pub nspid: Vec<u8>,
}

/// The process that a task belongs to, from its status file.
pub fn tgid(bytes: &[u8]) -> Option<u32> {
    Lines { rest: bytes }.find_map(|line| numbers(line, "Tgid:")?.u32())
}

/// The real user id in a status file, or in the beginning of one.
pub fn real_uid(bytes: &[u8]) -> Option<u32> {
    Lines { rest: bytes }.find_map(|line| numbers(line, "Uid:")?.u32())
}

/// The complete lines, each with its newline. This is written by hand because a status file has
/// about 60 short lines, and a call for each costs more than the search.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        const ONES: u64 = u64::MAX / 255;
        let mut at = 0;
        for chunk in self.rest.chunks_exact(8) {
            // The top bit is set in the lowest byte that is a newline. Bytes above that one may be
            // wrong.
            let x = u64::from_le_bytes(chunk.try_into().expect("8 bytes")) ^ (ONES * b'\n' as u64);
            let hit = x.wrapping_sub(ONES) & !x & (ONES * 0x80);
            if hit != 0 {
                return self.cut(at + hit.trailing_zeros() as usize / 8 + 1);
            }
            at += 8;
        }
        let end = self.rest[at..].iter().position(|b| *b == b'\n')?;
        self.cut(at + end + 1)
    }
}

impl<'a> Lines<'a> {
    #[inline]
    fn cut(&mut self, len: usize) -> Option<&'a [u8]> {
        let line;
        (line, self.rest) = self.rest.split_at(len);
        Some(line)
    }
}

/// The rest of a line after its key, or `None` if the line has another key.
#[inline]
fn numbers<'a>(line: &'a [u8], key: &str) -> Option<Fields<'a>> {
    line.strip_prefix(key.as_bytes()).map(Fields::new)
}

#[inline]
fn kib(line: &[u8], key: &str) -> Option<u64> {
    let mut f = numbers(line, key)?;
    let n = f.u64()?;
    (f.rest == b" kB\n").then_some(())?;
    n.checked_mul(1024)
}

fn mask(line: &[u8], key: &str) -> Option<u64> {
    numbers(line, key)?.next().and_then(hex)
}

impl StatusFile {
    /// Forgets the last task and reads the file of this one, as far as `groups` need it.
    pub fn parse(&mut self, bytes: &[u8], groups: Groups) {
        self.cred = Cred::new();
        self.statm = Statm::new();
        (self.nvcsw, self.nivcsw, self.threads) = (None, None, None);
        (self.locked_bytes, self.fd_size, self.swap_bytes) = (None, None, None);
        self.signals = Signals::new();
        self.settings = Settings::new();
        self.cpus.clear();
        self.mems.clear();
        self.gids.clear();
        self.nspid.clear();
        let cred = groups.contains(Groups::CRED);
        let statm = groups.contains(Groups::STATM);
        let sched = groups.contains(Groups::SCHED);
        let ns = groups.contains(Groups::NS);
        let stat = groups.contains(Groups::STAT);
        let signals = groups.contains(Groups::SIGNALS);
        let swap = groups.contains(Groups::SWAP);
        let settings = groups.contains(Groups::SETTINGS);
        for line in (Lines { rest: bytes }) {
            // Four bytes distinguish all keys. The code that parses a line compares the whole key.
            match line.first_chunk() {
                // Only some settings and the context switches come after it.
                Some(b"Cpus") if !sched && !settings => return,
                Some(b"Umas" | b"THP_" | b"Core" | b"Cpus" | b"Mems") if settings => {
                    self.setting(line);
                }
                Some(b"Secc") if settings && line.starts_with(b"Seccomp_filters:") => {
                    self.setting(line);
                }
                Some(k @ (b"Uid:" | b"Gid:" | b"Grou" | b"Trac" | b"NoNe" | b"Secc")) if cred => {
                    self.ids_and_modes(k, line);
                }
                Some(k @ (b"CapI" | b"CapP" | b"CapE" | b"CapB" | b"CapA")) if cred => {
                    self.capabilities(k, line);
                }
                Some(k @ b"VmSw") if swap => {
                    self.swap_bytes = kib(line, "VmSwap:");
                    if statm {
                        self.memory(k, line);
                    }
                }
                Some(k @ b"VmLc") if stat => {
                    self.locked_bytes = kib(line, "VmLck:");
                    if statm {
                        self.memory(k, line);
                    }
                }
                Some(k @ ([b'V', b'm', ..] | b"RssA" | b"RssF" | b"RssS" | b"Huge")) if statm => {
                    self.memory(k, line);
                }
                Some(b"NSpi") if ns => {
                    if let Some(f) = numbers(line, "NSpid:") {
                        ids(f, &mut self.nspid);
                    }
                }
                Some(b"FDSi") => {
                    self.fd_size = numbers(line, "FDSize:").and_then(|mut f| f.u32());
                }
                Some(b"SigQ" | b"SigP" | b"ShdP" | b"SigB" | b"SigI" | b"SigC") if signals => {
                    self.signal_masks(line);
                }
                Some(b"Thre") if sched => {
                    self.threads = numbers(line, "Threads:").and_then(|mut f| f.u32());
                }
                Some(b"volu") if sched => {
                    self.nvcsw =
                        numbers(line, "voluntary_ctxt_switches:").and_then(|mut f| f.u64());
                }
                Some(b"nonv") if sched => {
                    self.nivcsw =
                        numbers(line, "nonvoluntary_ctxt_switches:").and_then(|mut f| f.u64());
                }
                _ => {}
            }
        }
    }

    fn memory(&mut self, key: &[u8; 4], line: &[u8]) {
        let m = &mut self.statm;
        match key {
            b"VmSi" => set!(m, Statm.size_bytes, kib(line, "VmSize:")),
            b"VmPe" => set!(m, Statm.peak_size_bytes, kib(line, "VmPeak:")),
            b"VmRS" => set!(m, Statm.rss_bytes, kib(line, "VmRSS:")),
            b"RssA" => set!(m, Statm.rss_anon_bytes, kib(line, "RssAnon:")),
            b"RssF" => set!(m, Statm.rss_file_bytes, kib(line, "RssFile:")),
            b"RssS" => set!(m, Statm.rss_shmem_bytes, kib(line, "RssShmem:")),
            b"VmHW" => set!(m, Statm.peak_rss_bytes, kib(line, "VmHWM:")),
            b"VmDa" => set!(m, Statm.data_bytes, kib(line, "VmData:")),
            b"VmSt" => set!(m, Statm.stack_bytes, kib(line, "VmStk:")),
            b"VmEx" => set!(m, Statm.text_bytes, kib(line, "VmExe:")),
            b"VmLi" => set!(m, Statm.lib_bytes, kib(line, "VmLib:")),
            b"VmLc" => set!(m, Statm.locked_bytes, kib(line, "VmLck:")),
            b"VmPi" => set!(m, Statm.pinned_bytes, kib(line, "VmPin:")),
            b"VmPT" => set!(m, Statm.page_tables_bytes, kib(line, "VmPTE:")),
            b"VmSw" => set!(m, Statm.swap_bytes, kib(line, "VmSwap:")),
            b"Huge" => set!(m, Statm.hugetlb_bytes, kib(line, "HugetlbPages:")),
            _ => {}
        }
    }

    fn signal_masks(&mut self, line: &[u8]) {
        let s = &mut self.signals;
        match line.split(|b| *b == b':').next() {
            Some(b"SigQ") => {
                // "queued/limit"
                let slash = |b: &u8| if *b == b'/' { b' ' } else { *b };
                let text: Vec<u8> = line[5..].iter().map(slash).collect();
                set!(s, Signals.queued, Fields::new(&text).u32());
            }
            Some(b"SigPnd") => set!(s, Signals.pending, mask(line, "SigPnd:")),
            Some(b"ShdPnd") => set!(s, Signals.shared_pending, mask(line, "ShdPnd:")),
            Some(b"SigBlk") => set!(s, Signals.blocked, mask(line, "SigBlk:")),
            Some(b"SigIgn") => set!(s, Signals.ignored, mask(line, "SigIgn:")),
            Some(b"SigCgt") => set!(s, Signals.caught, mask(line, "SigCgt:")),
            _ => {}
        }
    }

    fn setting(&mut self, line: &[u8]) {
        let s = &mut self.settings;
        let one = |key| numbers(line, key).and_then(|mut f| f.u32());
        match line.split(|b| *b == b':').next() {
            Some(b"Umask") => {
                let octal = numbers(line, "Umask:").and_then(|mut f| f.next());
                let octal = octal.and_then(|o| std::str::from_utf8(o).ok());
                set!(s, Settings.umask, octal.and_then(|o| u32::from_str_radix(o, 8).ok()));
            }
            Some(b"Seccomp_filters") => {
                set!(s, Settings.seccomp_filters, one("Seccomp_filters:"));
            }
            Some(b"THP_enabled") => set!(s, Settings.thp_enabled, one("THP_enabled:")),
            Some(b"CoreDumping") => set!(s, Settings.coredumping, one("CoreDumping:")),
            Some(b"Cpus_allowed") => {
                bits(numbers(line, "Cpus_allowed:").and_then(|mut f| f.next()), &mut self.cpus);
            }
            Some(b"Mems_allowed") => {
                bits(numbers(line, "Mems_allowed:").and_then(|mut f| f.next()), &mut self.mems);
            }
            _ => {}
        }
    }

    fn ids_and_modes(&mut self, key: &[u8; 4], line: &[u8]) {
        let c = &mut self.cred;
        let one = |key| numbers(line, key).and_then(|mut f| f.u32());
        match key {
            b"Uid:" => {
                let mut f = Fields::new(&line[4..]);
                set!(c, Cred.uid, f.u32());
                set!(c, Cred.euid, f.u32());
                set!(c, Cred.suid, f.u32());
                set!(c, Cred.fsuid, f.u32());
            }
            b"Gid:" => {
                let mut f = Fields::new(&line[4..]);
                set!(c, Cred.gid, f.u32());
                set!(c, Cred.egid, f.u32());
                set!(c, Cred.sgid, f.u32());
                set!(c, Cred.fsgid, f.u32());
            }
            // The number and the list must come from one line.
            b"Grou" if c.known().ngroups().is_none() => {
                if let Some(f) = numbers(line, "Groups:") {
                    let whole = ids(f, &mut self.gids);
                    let n = u32::try_from(self.gids.len() / 4).ok();
                    set!(c, Cred.ngroups, n.filter(|_| whole));
                }
            }
            b"Trac" => set!(c, Cred.tracer_pid, one("TracerPid:")),
            b"NoNe" => set!(c, Cred.no_new_privs, one("NoNewPrivs:")),
            b"Secc" => set!(c, Cred.seccomp, one("Seccomp:")),
            _ => {}
        }
    }

    fn capabilities(&mut self, key: &[u8; 4], line: &[u8]) {
        let c = &mut self.cred;
        match key {
            b"CapI" => set!(c, Cred.cap_inheritable, mask(line, "CapInh:")),
            b"CapP" => set!(c, Cred.cap_permitted, mask(line, "CapPrm:")),
            b"CapE" => set!(c, Cred.cap_effective, mask(line, "CapEff:")),
            b"CapB" => set!(c, Cred.cap_bounding, mask(line, "CapBnd:")),
            b"CapA" => set!(c, Cred.cap_ambient, mask(line, "CapAmb:")),
            _ => {}
        }
    }
}

/// Parses a mask such as `3,ffffffff`, of words with 32 bits, into bytes, the lowest first.
fn bits(mask: Option<&[u8]>, out: &mut Vec<u8>) {
    out.clear();
    for word in mask.unwrap_or_default().rsplit(|b| *b == b',') {
        let Some(word) = hex(word).and_then(|n| u32::try_from(n).ok()) else {
            return out.clear();
        };
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Parses a list of ids. If a word is not an id, the list is empty and the result is `false`.
fn ids(mut f: Fields<'_>, out: &mut Vec<u8>) -> bool {
    out.clear();
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
        VmSwap:\t       4 kB\nHugetlbPages:\t    2048 kB\nThreads:\t2\nSigQ:\t3/96365\nSigPnd:\t0000000000000001\n\
        ShdPnd:\t0000000000000002\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000000008\n\
        SigCgt:\t8000000000000000\nCapInh:\t0000000000000001\n\
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
    fn status_gives_every_member() {
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
            m.hugetlb_bytes,
        ]
        .map(|b| b / 1024);
        assert_eq!(
            kib,
            [3060, 3061, 1760, 112, 1648, 3, 1761, 360, 132, 20, 1528, 1, 2, 48, 4, 2048]
        );
        assert_eq!(m.valid, Statm::ALL_VALID);
        assert_eq!((s.nvcsw, s.nivcsw, s.threads), (Some(150), Some(545), Some(2)));
        assert_eq!(words(&s.nspid), [5066, 12, 1]);
        assert_eq!(tgid(TEXT), Some(5065));
    }

    #[test]
    fn settings_are_parsed() {
        let text = b"Umask:\t0027\nCoreDumping:\t1\nTHP_enabled:\t0\nSeccomp:\t2\n\
            Seccomp_filters:\t9\nCpus_allowed:\t1,80000003\nCpus_allowed_list:\t0-1,31-32\n\
            Mems_allowed:\t00000000,00000001\nMems_allowed_list:\t0\n\
            voluntary_ctxt_switches:\t150\n";
        let s = parse(text, Groups::SETTINGS | Groups::CRED | Groups::SCHED);
        let r = s.settings;
        assert_eq!((r.umask, r.coredumping, r.thp_enabled, r.seccomp_filters), (0o27, 1, 0, 9));
        let unknown = super::super::bit(Settings::MEMBERS, "ioprio");
        assert_eq!(r.valid, Settings::ALL_VALID & !unknown);
        assert_eq!((s.cred.known().seccomp(), s.nvcsw), (Some(2), Some(150)));
        assert_eq!(s.cpus, [3, 0, 0, 0x80, 1, 0, 0, 0]);
        assert_eq!(s.mems, [1, 0, 0, 0, 0, 0, 0, 0]);
        let other = parse(text, Groups::CRED);
        assert_eq!((other.settings.valid, other.cpus.len(), other.mems.len()), (0, 0, 0));
        for bad in ["", "x", "1,", "1,100000000", ",1"] {
            let text = format!("Cpus_allowed:\t{bad}\nUmask:\t8\n");
            let s = parse(text.as_bytes(), Groups::SETTINGS);
            assert_eq!((s.cpus.len(), s.settings.valid), (0, 0), "{bad}");
        }
    }

    #[test]
    fn signals_are_parsed_only_if_requested() {
        let s = parse(TEXT, Groups::SIGNALS).signals;
        assert_eq!((s.pending, s.shared_pending, s.blocked, s.ignored), (1, 2, 4, 8));
        assert_eq!((s.caught, s.queued, s.valid), (1 << 63, 3, Signals::ALL_VALID));
        assert_eq!(parse(TEXT, WANT).signals.valid, 0);
        assert_eq!(parse(TEXT, WANT).fd_size, Some(256));
        assert_eq!(parse(TEXT, Groups::SWAP).swap_bytes, Some(4096));
        let both = parse(TEXT, Groups::SWAP | Groups::STATM);
        assert_eq!((both.swap_bytes, both.statm.known().swap_bytes()), (Some(4096), Some(4096)));
    }

    #[test]
    fn only_requested_members_are_parsed() {
        let s = parse(TEXT, Groups::STATM);
        assert_eq!((s.cred.valid, s.statm.valid), (0, Statm::ALL_VALID));
        assert_eq!((s.nvcsw, s.gids.len(), s.nspid.len()), (None, 0, 0));
        let s = parse(TEXT, Groups::CRED);
        assert_eq!((s.statm.valid, s.threads, s.locked_bytes), (0, None, None));
        let s = parse(TEXT, Groups::STAT);
        assert_eq!((s.statm.valid, s.locked_bytes), (0, Some(1024)));
        let s = parse(TEXT, Groups::STAT | Groups::STATM);
        assert_eq!((s.statm.known().locked_bytes(), s.locked_bytes), (Some(1024), Some(1024)));
    }

    #[test]
    fn status_of_a_kernel_thread_lacks_memory_and_groups() {
        let s = parse(b"Name:\tkthreadd\nGroups:\t \nKthread:\t1\nThreads:\t1\n", WANT);
        assert_eq!(s.statm.valid, 0);
        assert_eq!(s.cred.known().ngroups(), Some(0));
        assert_eq!(s.cred.known().uid(), None);
    }

    #[test]
    fn lines_of_every_length_end_at_their_newline() {
        for len in 0..40 {
            let line = vec![b'a'; len];
            // Bytes with values next to that of a newline must not be mistaken for one.
            let text = [&line[..], b"\n\x0b\n\n", &line[..], b"\x09\x0b\n", &line[..]].concat();
            let got: Vec<_> = Lines { rest: &text }.map(<[u8]>::len).collect();
            assert_eq!(got, [len + 1, 2, 1, len + 3]);
        }
    }

    #[test]
    fn a_reused_parser_forgets_the_previous_task() {
        let mut s = parse(TEXT, WANT);
        s.parse(b"", WANT);
        assert_eq!((s.cred, s.statm), (Cred::new(), Statm::new()));
        assert!(s.gids.is_empty() && s.nspid.is_empty() && s.nvcsw.is_none());
    }

    #[test]
    fn a_status_file_may_be_cut_anywhere() {
        let full = parse(TEXT, WANT);
        for n in 0..TEXT.len() {
            let s = parse(&TEXT[..n], WANT);
            assert!(s.cred.known().uid().is_none_or(|v| v == full.cred.uid), "cut at {n}");
            assert!(s.cred.known().cap_permitted().is_none_or(|v| v == full.cred.cap_permitted));
            assert!(s.statm.known().rss_bytes().is_none_or(|v| v == full.statm.rss_bytes));
            assert!(s.nvcsw.is_none_or(|v| v == 150) && s.nivcsw.is_none());
            assert!(s.cred.known().ngroups().is_none_or(|v| v == 3));
        }
    }

    #[test]
    fn garbage_in_status_is_not_known() {
        let text = b"\n:\n::\nUid:\nUid:\t-1 99999999999\nVmRSS:\t5 MB\nVmSize:\t18446744073709551615 kB\n\
            CapInh:\tzz\nSeccomp:\nGroups:\t1 x 2\n";
        let s = parse(text, WANT);
        assert_eq!((s.cred.known().uid(), s.cred.known().euid()), (None, None));
        assert_eq!(s.statm.valid, 0);
        assert_eq!((s.cred.known().ngroups(), s.gids.len()), (None, 0));
        assert_eq!(tgid(b"Tgid:\t5"), None);
        assert_eq!(tgid(&[0xff; 100]), None);
    }
}
