//! Says how each invocation is run with either tool, and which invocations differ on purpose.
//! `typed.rs` has the invocations.

use super::typed::*;

/// An invocation: the typed arguments, and the commands that the shell runs for either tool.
pub struct Case {
    pub typed: &'static str,
    pub peer: String,
    pub ours: String,
    /// Lines with this are not compared.
    pub without: Option<&'static str>,
}

/// A word in the arguments of a process whose odd bytes `taskdiag ps` shows and procps does not.
const ODD: &str = "elszcjqxahov";

/// Differs on purpose, and why.
pub const MEANT: &[(&str, &str, &str)] = &[
    ("ps", "axlm", "procps 4.0.2 ends with a segmentation fault"),
    (
        "lsof table",
        "",
        "if nothing is selected, lsof lists each thread, whose files are those of its process",
    ),
    (
        "taskdiag ps",
        "-fp $PID_cmdline",
        "bytes that cannot be printed are escaped, and procps prints ? for each",
    ),
    ("lsof table", "-nP +d $SCRATCH", BOUND),
    ("lsof table", "-nP +D $SCRATCH", BOUND),
    ("pmap", "-XX $PID_sleep", "the letters mr, mw, me and ms of VmFlags are not read"),
    (
        "ps",
        "-eo pid,environ",
        "procps 4.0.2 shows - for the environment, which it does not read there",
    ),
    ("ps", "-eo '%p %a'", "procps 4.0.2 cuts the last column of such a format; newer ones do not"),
    ("ps", "--ppid 0", "procps 4.0.2 takes no 0, newer ones do: the first process has that parent"),
    (
        "ps",
        "axf --sort -pid",
        "procps 4.0.2 loses most processes, since its search for children needs another order",
    ),
    (
        "ps by another user",
        "-eo pid,rbytes,wbytes",
        "procps has 0 for what is denied, which is shown as - like all else that is denied",
    ),
    ("ps", "1,2,3", "commas between process ids are read, with which procps does nothing"),
    ("ps of threads", "-Lp $PID_burn -o lwp,time", MAIN_THREAD),
    ("ps of threads", "-Tp $PID_burn -o spid,cputimes", MAIN_THREAD),
    (
        "ps of threads",
        "-Lp $PID_burn --sort lwp -o lwp",
        "procps 4.0.2 shows only the main thread of each process if it has to sort",
    ),
    (
        "ps of a kernel thread",
        "-p 2 -o pid,ag_id,ag_nice",
        "threads of the kernel have no autogroup, for which procps 4.0.2 has -1 and 0",
    ),
];

// At most 25 intended differences. To add one, remove one.
const _: () = assert!(MEANT.len() <= 25, "more than 25 differences are meant");

const MAIN_THREAD: &str = "procps 4.0.2 has the CPU time of the whole process in the row of its main thread, where \
     newer ones and ours have that of the thread";

const BOUND: &str = "a unix socket that is bound in the directory is in use there, which lsof 4.95 finds by its full name only";

/// CPU time in clock ticks, as procps prints it; BPF counts nanoseconds, so that %CPU of young
/// processes differs.
const CLOCK: &str = "TASKDIAG_ENGINE=procfs";

/// The cases of a tool.
pub fn of(tool: &str) -> Vec<Case> {
    let ps = |typed: &'static str| {
        // VAR=VALUE words before the arguments go to the environment.
        let is_word = |c: char| c == '_' || c.is_ascii_uppercase();
        let is_env =
            |env: &str| env.split_once('=').is_some_and(|(name, _)| name.chars().all(is_word));
        let (env, args) =
            typed.split_once(' ').filter(|(env, _)| is_env(env)).unwrap_or(("", typed));
        Case {
            typed,
            peer: format!("{env} PATH=/usr/bin:/bin run ps {args}"),
            ours: format!("{env} {CLOCK} PATH=$BIN:/usr/bin:/bin run ps {args}"),
            without: None,
        }
    };
    // A case with the same arguments for both tools.
    let same = |tool: &str, ours: &str, typed: &'static str| Case {
        typed,
        peer: format!("PATH=/usr/sbin:/usr/bin:/sbin:/bin run {tool} {typed}"),
        ours: format!("{CLOCK} PATH=$BIN:/usr/bin:/bin run {ours} {typed}"),
        without: (ours == "taskdiag ps" && !typed.contains("cmdline")).then_some(ODD),
    };
    match tool {
        "ps" => PS.iter().map(|c| ps(c)).collect(),
        "ps by bpf" => {
            let bpf = |c: Case| Case { ours: c.ours.replace(CLOCK, "TASKDIAG_ENGINE=bpf"), ..c };
            PS_BY_BPF.iter().map(|c| bpf(ps(c))).collect()
        }
        // A user who may not read the processes of others.
        "ps by another user" => {
            let as_user = "run setpriv --reuid 4242 --regid 4242 --clear-groups ps";
            let other = |c: Case| Case {
                peer: c.peer.replace("run ps", as_user),
                ours: c.ours.replace("run ps", as_user),
                ..c
            };
            PS_BY_ANOTHER_USER.iter().map(|c| other(ps(c))).collect()
        }
        // A process whose other threads have used CPU time.
        "ps of threads" => PS_OF_THREADS.iter().map(|c| ps(c)).collect(),
        "ps of odd names" => PS_OF_ODD_NAMES.iter().map(|c| ps(c)).collect(),
        "pmap of odd names" => PMAP_OF_ODD_NAMES.iter().map(|c| same("pmap", "pmap", c)).collect(),
        "ps of nodes" => PS_OF_NODES.iter().map(|c| ps(c)).collect(),
        // Outside of the namespace, which has no threads of the kernel.
        "ps of a kernel thread" => {
            let outside = |c: Case| Case {
                peer: c.peer.replace("run ps", "ps"),
                ours: c.ours.replace("run ps", "ps"),
                ..c
            };
            PS_OF_A_KERNEL_THREAD.iter().map(|c| outside(ps(c))).collect()
        }
        "taskdiag ps" => TASKDIAG_PS.iter().map(|c| same("ps", "taskdiag ps", c)).collect(),
        "pstree" => PSTREE.iter().map(|c| same("pstree", "pstree", c)).collect(),
        "lsof" => LSOF.iter().map(|c| same("lsof -w", "taskdiag files --paths --mem", c)).collect(),
        // The table, from a link with this name.
        "lsof table" => {
            // lsof has a child process, which is listed, too.
            let table = |c| Case { without: Some("lsof "), ..same("lsof -w", "lsof -w", c) };
            LSOF_TABLE.iter().map(|c| table(c)).collect()
        }
        "pmap" => PMAP.iter().map(|c| same("pmap", "pmap", c)).collect(),
        "pmap by bpf" => {
            let bpf = |c: Case| Case { ours: c.ours.replace(CLOCK, "TASKDIAG_ENGINE=bpf"), ..c };
            PMAP_BY_BPF.iter().map(|c| bpf(same("pmap", "pmap", c))).collect()
        }
        other => panic!("there are no cases of {other}"),
    }
}
