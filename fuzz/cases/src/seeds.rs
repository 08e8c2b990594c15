//! Valid inputs for each target. The encoder makes them, so new members of the format are in them,
//! too. A fuzzer starts from them. Findings are kept as files in `fuzz/seeds/<target>/`.

use std::time::Duration;

use taskdiag::service::{Ask, Reply};
use taskdiag_wire::{
    A_CGROUP_PATH, A_GROUPS, A_NSPID, BLOB_DELETED, BLOB_MAX, BLOB_REWRITTEN, Base, CgroupList,
    CgroupMsg, CgroupValue, Done, Fd, Group, Groups, Info, PathKind, Reason, Req, Stat, Strategy,
    StreamWriter, Vma, build, encode_features_request, encode_request,
};

/// The seeds of a target, as (name, bytes). Empty for an unknown target.
pub fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    match target {
        "stream" | "output" => streams(),
        "request" => requests(),
        "procfs_parse" => proc_files(),
        "filter" => expressions(),
        _ => Vec::new(),
    }
}

fn expressions() -> Vec<(String, Vec<u8>)> {
    const ALL: &[&str] = &[
        "rss > 1G and user == \"web\" and args ~ \"java.*kafka\"",
        "not (comm in (sh, 'a b', \"c'd\")) or pid not in (1, 0x10)",
        "etime < 1h30m && time >= 1.5s || start < '2026-01-31 12:00:01Z'",
        "state == running or s in (D, Z)",
        "!(ni <= -5) and %cpu > 12.5% and rlimit_nofile == unlimited",
        "tty missing and exe known and task_flags == 0x40",
        "deleted and size >= 64KiB or deleted == false",
        "supgrp == wheel and nspid > 1 and args !~ '(?i)[a-z]+\\\\s$'",
        "type == REG and task.rss < 2Ti and lport in (22, 443)",
        "swap > 1 and pss > 1.5M",
    ];
    let seed = |(n, text): (usize, &&str)| (format!("expression-{n}"), text.as_bytes().to_vec());
    ALL.iter().enumerate().map(seed).collect()
}

fn requests() -> Vec<(String, Vec<u8>)> {
    let mut out = vec![("features".to_owned(), encode_features_request())];
    for strategy in Strategy::ALL {
        let pid = u32::from(strategy.takes_pid()) * 42;
        let groups = Groups::BASE | Groups::CRED;
        out.push((strategy.name().to_owned(), encode_request(&Req::new(*strategy, pid, groups))));
    }
    let ask = Ask::new(Duration::from_millis(500), encode_features_request());
    out.push(("ask".to_owned(), ask.encode()));
    out.push(("reply".to_owned(), Reply::File(1 << 20).encode().to_vec()));
    // This is a longer request of a later version whose new part is zero.
    let mut longer = encode_request(&Req::new(Strategy::All, 0, Groups::BASE));
    longer.extend([0; 8]);
    let len = longer.len() as u32;
    longer[..4].copy_from_slice(&len.to_ne_bytes());
    out.push(("longer".to_owned(), longer));
    out
}

fn writer(groups: Groups, strategy: Strategy) -> StreamWriter {
    let mut w = StreamWriter::new();
    w.info(&build!(Info {
        show_flags: groups.bits(),
        dump_strategy: strategy as u64,
        ..StreamWriter::blank_info()
    }));
    w
}

fn streams() -> Vec<(String, Vec<u8>)> {
    let done = |w: StreamWriter| w.finish(Done::default()).as_bytes().to_vec();
    let mut out = vec![("empty".to_owned(), done(writer(Groups::NONE, Strategy::All)))];

    let mut w = writer(Groups::from_bits(u64::MAX), Strategy::AllThread);
    for pid in 1..4 {
        full_task(&mut w, pid);
    }
    out.push(("full".to_owned(), done(w)));

    // Shorter records, which are read as older ones.
    let older = include_bytes!("../../../crates/taskdiag-wire/tests/golden/0.1.0-first.stream");
    out.push(("older".to_owned(), older.to_vec()));

    let mut w = writer(Groups::BASE | Groups::CMDLINE, Strategy::All);
    w.begin_task(7, 7);
    w.missing(Group::Base, Reason::Vanished);
    w.missing(Group::Cmdline, Reason::Denied);
    w.end_task();
    w.begin_task(8, 8);
    w.abandon_task();
    out.push(("missing".to_owned(), done(w)));

    let mut w = writer(Groups::CMDLINE, Strategy::All);
    w.begin_task(9, 9);
    w.put_blob(Group::Cmdline as u16, 0, 0, &vec![b'a'; BLOB_MAX + 100], BLOB_MAX + 100);
    w.end_task();
    w.begin_task(10, 10);
    w.put_blob(Group::Cmdline as u16, 0, BLOB_REWRITTEN, b"cut", 300);
    w.end_task();
    out.push(("pieces".to_owned(), done(w)));

    let mut head = writer(Groups::BASE | Groups::STAT, Strategy::All);
    head.begin_task(11, 11);
    head.put(&Base::new());
    head.end_task();
    head.continue_task(11, 11);
    head.put(&Stat::new());
    head.end_task();
    out.push(("continued".to_owned(), done(head)));

    // A recording with control groups, one of whose values only a newer version knows.
    let mut w = writer(Groups::NONE, Strategy::All);
    w.cgroup_list(&build!(CgroupList { most: 2, left_out: 1 }));
    let value = |member| build!(CgroupValue { value: 7, member });
    let all: Vec<_> = (0..70).map(value).collect();
    w.cgroup(&CgroupMsg::default(), b"/", &all);
    w.cgroup(&CgroupMsg::default(), b"/docker/a\xff", &all[..3]);
    out.push(("cgroups".to_owned(), done(w)));

    // These are possible and impossible reasons for the end of a walk.
    for error in [-4, -12, 5, -5000, i32::MIN] {
        let mut w = writer(Groups::BASE, Strategy::All);
        w.begin_task(12, 12);
        w.put(&Base::new());
        w.end_task();
        let done = build!(Done { error, ..Done::default() });
        out.push((format!("ended{error}"), w.finish(done).as_bytes().to_vec()));
    }
    out
}

fn full_task(w: &mut StreamWriter, pid: u32) {
    w.begin_task(pid, 1);
    let mut base = Base::new();
    base.valid = u32::MAX;
    w.put_base(&base, b"a\n)");
    macro_rules! records {
        ($($t:ident)*) => { $(w.put(&taskdiag_wire::$t::new());)* };
    }
    taskdiag_wire::for_each_record!(records);
    w.put_blob(A_GROUPS, 0, 0, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0], 12);
    w.put_blob(A_NSPID, 0, 0, &[1, 0, 0, 0], 4);
    w.put_blob(A_CGROUP_PATH, 0, 0, b"/a", 2);
    w.put_blob(A_CGROUP_PATH, 5, 0, b"cpu:/b", 6);
    w.put_blob(Group::Cmdline as u16, 0, 0, b"sh\0-c\0\xff\0", 8);
    w.put_blob(Group::Paths as u16, PathKind::Exe as u32, BLOB_DELETED, b"/bin/x", 6);
    w.put_blob_missing(Group::Paths as u16, PathKind::Cwd as u32, Reason::Denied);
    w.put_blob(Group::Environ as u16, 0, 0, b"A=1\0", 4);
    w.put_name(pid + 100, BLOB_DELETED, b"/lib/libc.so");
    let vma = build!(Vma { start: 4096, end: 8192, name: 101, ..Vma::default() });
    w.put_list(Vma::ALL_VALID, &[vma, vma]);
    w.put_list(Fd::ALL_VALID, &[build!(Fd { fd: 3, name: 999, ..Fd::default() })]);
    macro_rules! lists {
        ($($t:ident)*) => { $(
            w.put_list(taskdiag_wire::$t::ALL_VALID, &[taskdiag_wire::$t::default()]);
            w.put_list::<taskdiag_wire::$t>(1, &[]);
        )* };
    }
    taskdiag_wire::for_each_list!(lists);
    w.put_blob(Group::Label as u16, 0, 0, b"unconfined", 10);
    w.shared(Group::Fd, 1);
    w.put_blob(Group::Wchan as u16, 0, 0, b"do_wait", 7);
    w.put_blob(Group::Kstack as u16, 0, 0, b"a+0x1/0x2\n", 10);
    w.missing(Group::Vma, Reason::OverBudget);
    w.end_task();
}

/// One file of each kind, as the kernel writes them.
fn proc_files() -> Vec<(String, Vec<u8>)> {
    let files: &[(&str, &[u8])] = &[
        ("pid", b"4194304"),
        ("ns", b"mnt:[4026531832]"),
        ("schedstat", b"100 20 3\n"),
        (
            "io",
            b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
            cancelled_write_bytes: 7\n",
        ),
        (
            "maps",
            b"7f40be1ef000-7f40be211000 rw-p 0000a000 fe:00 247026      /usr/bin/a\\012b (deleted)\n\
            7ffe67a48000-7ffe67a69000 rw-p 00000000 00:00 0             [stack]\n\
            1000-2000 rw-p 00000000 00:00 0                             [anon:x y]\n",
        ),
        (
            "smaps",
            b"55b4a18ab000-55b4a18ad000 r--s 00000000 fe:00 247026      /usr/bin/cat\n\
            Rss:                   8 kB\nPss:                   8 kB\nSwap:                  0 kB\n\
            Locked:                0 kB\nVmFlags: rd mr mw me lo \n\
            7000-8000 rw-p 00000000 00:00 0\nRss:                   4 kB\n",
        ),
        (
            "fdinfo",
            b"pos:\t5\nflags:\t02004002\nmnt_id:\t15\nino:\t9\neventfd-count:               7\n\
            eventfd-id: 3\ntfd:        5 events:       19 data:   1234  pos:0 ino:3d sdev:9\n\
            inotify wd:1 ino:f7c sdev:fe00000 mask:3c ignored_mask:0 fhandle-bytes:8\n\
            clockid: 1\nticks: 0\nsettime flags: 00\nit_value: (9, 5)\nit_interval: (1, 0)\n\
            sigmask:\t0000000000000200\nPid:\t-1\nmap_type:\t2\nmax_entries:\t10\nmap_id:\t7\n\
            SqMask:\t0x7\nCqMask:\t0xf\nlink_type:\titer\nlink_id:\t3\n",
        ),
        (
            "drm",
            b"pos:\t0\ndrm-driver:\ti915\ndrm-client-id:\t7\ndrm-pdev:\t0000:00:02.0\n\
            drm-engine-render:\t9 ns\ndrm-engine-capacity-video:\t2\ndrm-total-vram:\t8 KiB\n\
            drm-cycles-rcs:\t3\ndrm-total-cycles-rcs:\t9\n",
        ),
        ("autogroup", b"/autogroup-12 nice -3\n"),
        ("pods", b"0::/kubepods.slice/kubepods-pod0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice/\
            crio-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff.scope\n"),
        ("unit", b"0::/user.slice/user-7.slice/user@7.service/app.slice/a\\x2db.scope\n"),
        ("socket", b"socket:[12]"),
        ("memfd", b"/memfd:a (deleted)"),
        ("limits", b"Max cpu time      unlimited   10   seconds\nMax open files   1   2   files\n"),
        ("unix_diag", b"\x1c\0\0\0\x14\0\0\0\0\0\0\0\0\0\0\0\x01\x01\x01\0\x07\0\0\0\
            \0\0\0\0\0\0\0\0\x08\0\x02\0\x09\0\0\0"),
        (
            "net_text",
            b"   1: 0100007F:0050 0200007F:A001 01 00000006:00000005 00:0 00000000  0 0 77 1\n\
            0: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07 \
            0:0 00:0 0 0 0 9 2\n0: 00000002 00000000 00010000 0001 01 12 @a b\n\
            00000000b5f3fe71 15   5 00000000 0 0 0 2 0 487\n00000000b5f3fe71 3 3 0003 2 1 0 0 8\n",
        ),
        ("cgroup", b"9:name=systemd:/a\n2:cpu,cpuacct:/x:y\n0::/b c\n"),
        (
            "mountinfo",
            b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            41 31 0:38 /a\\040b /cg rw shared:5 master:1 - cgroup2 cgroup2 rw\n",
        ),
        (
            "stat",
            b"42 (a) b\n\xff)) S 1 42 42 34816 42 4194560 115 2 0 1 12 3 4 5 20 0 1 0 \
            8130 3133440 440 18446744073709551615 1 2 140727 0 0 0 0 4096 65536 1 0 0 17 1 0 0 \
            0 0 0 1 2 3 140728 140740 140740 140744 0\n",
        ),
        (
            "kthread-stat",
            b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0 \
            18446744073709551615 0 0 0 0 0 0 0 2147483647 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        ),
        (
            "status",
            b"Name:\tx\\nUid:\t9\nUmask:\t0022\nState:\tR (running)\nTgid:\t5065\nPid:\t5066\n\
            TracerPid:\t77\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t4294967295\nGroups:\t4 24 1000 \n\
            NSpid:\t5066\t12\t1\nVmPeak:\t    3061 kB\nVmRSS:\t    1760 kB\nVmSwap:\t 4 kB\n\
            Threads:\t2\nCapInh:\t0000000000000001\nCapAmb:\t0000000000000004\nNoNewPrivs:\t1\n\
            Seccomp:\t2\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n",
        ),
    ];
    files.iter().map(|(name, text)| ((*name).to_owned(), text.to_vec())).collect()
}
