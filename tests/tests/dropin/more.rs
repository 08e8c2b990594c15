//! Invocations besides those of `peers`.

use std::process::Command;

/// Each column that ps has, of processes and of threads.
pub fn columns() -> Vec<String> {
    let list = Command::new("/usr/bin/ps").arg("L").output().expect("ps runs").stdout;
    let list = String::from_utf8(list).expect("names are ASCII");
    let names: Vec<&str> = list.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert!(names.len() > 150, "ps L has {} columns", names.len());
    let of = |options: &str, name: &str| format!("run ps {options},{name}");
    names.iter().flat_map(|n| [of("-eo pid", n), of("-eLo pid,lwp", n)]).collect()
}

/// The program that prints items.
const PIDS_ITEMS: &str = env!("CARGO_BIN_EXE_pids_items");

/// The soname of the libproc2 that ps uses.
fn soname() -> &'static str {
    let maps = Command::new("ldd").arg("/usr/bin/ps").output().expect("ldd runs").stdout;
    let is_new = String::from_utf8_lossy(&maps).contains("libproc2.so.1");
    if is_new { "libproc2.so.1" } else { "libproc2.so.0" }
}

/// The library that a command needs in LD_PRELOAD.
pub fn library(command: &str) -> Option<&'static str> {
    command.contains(PIDS_ITEMS).then(soname)
}

/// All items together, and some alone, for which the real library reads other files.
pub fn items() -> Vec<String> {
    let abi = soname().trim_start_matches("libproc2.so.");
    let sets = [
        "",
        "CMDLINE",
        "CMDLINE STATE",
        "CMDLINE_V ENVIRON_V CGROUP_V",
        "ID_EUID ID_EUSER ID_EGID ID_EGROUP",
        "ID_EUID ID_EUSER ID_EGID ID_EGROUP ID_RUID",
        "CMD NLWP ID_PPID",
        "CMD NLWP ID_PPID SIGNALS",
        "MEM_RES TTY_NAME TTY_NUMBER",
        "FLT_MAJ_DELTA FLT_MIN_DELTA TICS_ALL_DELTA",
        "EXE CMD",
    ];
    let of = |locale: &str, names: &str| format!("{locale}run {PIDS_ITEMS} {abi} {names}");
    let all = sets.iter().map(|names| of("", names));
    all.chain([of("LC_ALL=C ", "CMD CMDLINE CMDLINE_V ENVIRON ENVIRON_V")]).collect()
}

/// Invocations of the other programs. `$PID_sleep` and so on are processes of the workload.
pub const OTHERS: &[&str] = &[
    "run pgrep sleep",
    "run pgrep -x sleep",
    "run pgrep -x nosuch",
    "run pgrep -l sleep",
    "run pgrep -a sleep",
    "run pgrep -c sleep",
    "run pgrep -d, sleep",
    "run pgrep -v sleep",
    "run pgrep -vl sleep",
    "run pgrep -f 'sleep 70'",
    "run pgrep -fa 'sleep 70'",
    "run pgrep -xf 'sleep 7001'",
    "run pgrep -fl argument",
    "run pgrep -n sleep",
    "run pgrep -o sleep",
    "run pgrep -nl sleep",
    "run pgrep -ol sh",
    "run pgrep -i SLEEP",
    "run pgrep -u 4242",
    "run pgrep -u averyverylonguser -l",
    "run pgrep -U 4242 -l",
    "run pgrep -U root -l",
    "run pgrep -G 4242",
    "run pgrep -G averyverylonggroup -l",
    "run pgrep -g 0 -l",
    "run pgrep -s 0 -l",
    "run pgrep -P 1",
    "run pgrep -P 1 -l",
    "run pgrep -P 1,2,3 -la",
    "run pgrep -t $OWN_TTY -l",
    "run pgrep -t ${OTHER_TTY#/dev/} -l",
    "run pgrep -w sleep",
    "run pgrep -w mktask",
    "run pgrep -wl .",
    "run pgrep -r S -l",
    "run pgrep -r T -l",
    "run pgrep -r Z -l",
    "run pgrep -r R,S -c",
    "run pgrep -O 1 sleep",
    "run pgrep -O 100000 sleep",
    "run pgrep --ns 1 -l",
    "run pgrep --ns 1 --nslist pid,mnt -l",
    "run pgrep --cgroup / -l",
    "run pgrep -A sleep",
    // Only newer versions have these options.
    "run pgrep --env ONE=1 -l",
    "run pgrep --env TWO -la",
    "run pgrep --quiet sleep",
    "run pgrep --shell-quote -a sleep",
    "run pgrep -q sleep",
    "run pgrep --nosuch",
    "run pgrep",
    "run pgrep -f .",
    "run pgrep -fa .",
    "run pgrep -la . -u root,4242",
    "run pkill -0 -x sleep",
    "run pkill -0 -e -x sleep",
    "run pkill -0 -x nosuch",
    "run pkill -0 -c sleep",
    "run pidwait -x nosuch",
    "TERM=dumb run top -b -n1",
    "TERM=dumb run top -b -n1 -H",
    "TERM=dumb run top -b -n1 -c",
    "TERM=dumb run top -b -n1 -c -w 512",
    "TERM=dumb run top -b -n1 -i",
    "TERM=dumb run top -b -n1 -S",
    "TERM=dumb run top -b -n1 -E g -e m",
    "TERM=dumb run top -b -n1 -o PID",
    "TERM=dumb run top -b -n1 -o +PID",
    "TERM=dumb run top -b -n1 -o -PID",
    "TERM=dumb run top -b -n1 -o RES",
    "TERM=dumb run top -b -n1 -o VIRT",
    "TERM=dumb run top -b -n1 -o USER",
    "TERM=dumb run top -b -n1 -o COMMAND",
    "TERM=dumb run top -b -n1 -o NI",
    "TERM=dumb run top -b -n1 -o TIME+",
    "TERM=dumb run top -b -n1 -H -o PID",
    "TERM=dumb run top -b -n1 -p 1",
    "TERM=dumb run top -b -n1 -p $PID_sleep,1",
    "TERM=dumb run top -b -n1 -H -p $PID_threads",
    "TERM=dumb run top -b -n1 -u root",
    "TERM=dumb run top -b -n1 -u 4242",
    "TERM=dumb run top -b -n1 -U 4242",
    "TERM=dumb run top -b -n1 -u '!root'",
    "TERM=dumb run top -b -n2 -d 0.2 -o PID",
    "TERM=dumb run top -b -n2 -d 0.2 -H -o PID",
    "TERM=dumb run top -b -n1 -1",
    "TERM=dumb run top -O",
    "TERM=dumb run top -h",
    "run w",
    "run w -h",
    "run w -s",
    "run w -f",
    "run w -i",
    "run w -o",
    "run w nosuch",
    "run pmap 1",
    "run pmap $PID_sleep",
    "run pmap 1 $PID_sleep",
    "run pmap -x $PID_memory",
    "run pmap -d $PID_memory",
    "run pmap -q $PID_threads",
    "run pmap -p $PID_creds",
    "run pmap 99999",
    "run pmap",
    "run skill -n -v -0 -c sleep",
    "run skill -n -c sleep",
    "run skill -n -u 4242",
    "run skill -n -u averyverylonguser",
    "run skill -n -u root",
    "run skill -n -t ${OTHER_TTY#/dev/}",
    "run skill -n -p $PID_sleep",
    "run skill -n -c nosuch",
    "run snice -n +5 -c sleep",
    "run snice -n -u 4242",
    "run snice -n -v -u root",
    "run snice -n -p $PID_sleep",
    "run snice -n -v -c sh",
    // Other locales, and sorts.
    "LC_ALL=C run ps -ef",
    "LC_ALL=C run ps aux",
    "LC_ALL=C run pgrep -fa .",
    "LC_ALL=C TERM=dumb run top -b -n1 -c",
    "LC_ALL=POSIX run ps -eo pid,comm,cgroup,exe",
    "LIBPROC_HIDE_KERNEL=1 run ps -ef",
    "run ps -eo pid,args,environ",
    "run ps -eLo pid,lwp,environ",
    "run ps -eo pid,comm --sort -pid",
    "run ps -eo pid,comm --sort comm",
    "run ps -eo pid,comm --sort -rss,pid",
    "run ps -eo pid,comm --sort vsize",
    "run ps -eo pid,comm --sort user,-pid",
    "run ps -eo pid,comm --sort tty,pid",
    "run ps -eo pid,comm --sort start_time,pid",
    "run ps -eo pid,comm --sort ppid,-nlwp",
    "run ps -eo pid,comm --sort cmd",
    "run ps -eo pid,comm --sort nice,pid",
    "run ps -eo pid,comm --sort -size,pid",
    "run ps -q 1,2,3 -o pid,comm",
    "run ps -q $PID_sleep -f",
    "run ps -q $PID_threads -Lf",
    "run ps -p 1,$PID_sleep -f",
    "run ps -Lp $PID_threads -f",
    "run ps -eLo pid,lwp,time,min_flt,maj_flt,pcpu,cputime",
    "run ps -eLo pid,lwp,rbytes,wbytes,rchars,wchars,rops,wops",
    "run ps -eo pid,rbytes,wbytes,rchars,wchars,rops,wops,wcbytes",
    "run ps -eLo pid,lwp,pending,sig_pend,blocked,ignored,caught",
    "run ps -eo pid,pss,uss,rss,psr,cls,rtprio",
    "run ps -eLo pid,lwp,pss,uss,exe,wchan",
];

/// Invocations by a user who may not read processes of other users.
pub const BY_ANOTHER_USER: &[&str] = &[
    "run ps",
    "run ps aux",
    "run ps axl",
    "run ps axe",
    "run ps -ef",
    "run ps -eLf",
    "run ps -eo pid,exe,wchan,environ",
    "run ps -eo pid,ipcns,mntns,netns,pidns,userns,utsns,cgroupns,timens",
    "run ps -eLo pid,lwp,ipcns,mntns,netns",
    "run ps -eo pid,cgroup,label,luid,oom,oomadj,unit,slice",
    "run ps -eo pid,rbytes,wbytes,rops",
    "run ps -eo pid,pss,uss",
    "run ps -eo pid,eip,esp,stackp,drs,trs,lim,numa",
    "run ps -eo pid,supgrp,supgid,ag_id,ag_nice",
    "run ps x",
    "run ps u",
    "run pgrep -fa .",
    "run pgrep -u 4242 -l",
    "run pgrep --ns 1 -l",
    "TERM=dumb run top -b -n1",
    "TERM=dumb run top -b -n1 -H -c",
    "run pmap $PID_sleep",
    "run skill -n -c sleep",
];
