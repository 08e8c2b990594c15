//! The keys, for the window of help and for the last line of the screen.

/// The keys in the last line, the most important ones first.
pub const FOOTER: &[(&str, &str)] = &[
    ("q", "quit"),
    ("?", "help"),
    ("/", "search"),
    ("\\", "filter"),
    ("<>", "sort"),
    ("f", "columns"),
    ("Tab", "views"),
    ("t", "tree"),
    ("k", "signal"),
    ("H", "threads"),
    ("b", "sums"),
    ("G", "cgroups"),
    ("Enter", "details"),
    ("F", "follow"),
    ("u", "user"),
    ("r", "nice"),
    ("i", "idle"),
    ("1", "CPUs"),
    ("d", "delay"),
    ("R", "reverse"),
    ("K", "kernel"),
    ("Z", "pause"),
    ("W", "keep"),
];

/// All keys, each in a line that fits 80 columns.
pub const HELP: &[(&str, &str)] = &[
    ("Up Down PgUp PgDn Home End", "move; the mouse wheel does, too"),
    ("/  or L F3", "search a text in names and arguments"),
    ("F3  or & n", "go to the next row that has it"),
    ("F", "the cursor follows its task until it is moved"),
    ("\\  or o F4", "show only rows with a word, or by an expression"),
    ("u", "show only tasks of a user"),
    ("i", "leave out tasks that used no CPU time"),
    ("K", "leave out kernel threads"),
    ("Esc  or =", "show all rows again"),
    ("Tab  or 0 2 3 4 5", "views: CPU, memory, I/O, scheduling, waits"),
    ("P M T N", "sort by CPU, memory, time, pid"),
    ("< >  or Left Right", "sort by the next column; so does a click on it"),
    ("F6", "sort by any column"),
    ("R  or I", "reverse the order"),
    ("f  or F2 C", "choose columns"),
    ("p", "the command: arguments, name, program"),
    ("t  or F5 V", "show children below their parents"),
    ("+ -", "in the tree: show or hide what is below a row"),
    ("S", "in the tree: sums over each task and all below it"),
    ("H", "show threads instead of processes"),
    ("b", "add up by unit, slice, container, user, command, ..."),
    ("G", "the tree of cgroups; Enter shows the tasks of one"),
    ("Enter", "show all about a task, or what is in a sum"),
    ("l", "its open files"),
    ("s", "what it waits for: its kernel stacks"),
    ("c  and U", "mark a task, and all below it in the tree; unmark"),
    ("k  or F9", "choose a signal, and send it"),
    ("r  or F7 F8", "set the nice value"),
    ("a", "set the CPUs that it may run on"),
    ("d", "set the interval"),
    ("Space", "refresh now"),
    ("Z", "pause"),
    ("1", "a meter for each CPU"),
    ("m", "meters as bars or as numbers"),
    ("E  and e", "sizes above, in the table: with a letter, KiB, bytes"),
    ("z x y", "colour, bold sorted column, colours of running tasks"),
    ("W", "keep columns, order and view for the next time"),
    ("[ ] { }", "with --replay: go 1 or 60 frames back or forward"),
    ("g  and Space", "with --replay: go to a time; play"),
    ("Ctrl-Z", "stop, until the shell continues it"),
    ("q  or F10 Ctrl-C", "quit"),
    ("", ""),
    ("?", "a value that is not known"),
    ("-", "a value that the task does not have"),
    (">=", "a sum that lacks some of its parts"),
    ("CPU  | # =", "in user mode, in the kernel, taken by the hypervisor"),
    ("Memory  | :", "used, and used for files but available"),
    ("Pressure %", "time in which some task waited for it; full: all did"),
    ("Ended", "tasks that ended within the last two refreshes"),
    ("+3 -2", "tasks that began and ended since the last refresh"),
    ("slowed", "scans would take more than their share (--share)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_keys_fits_80_columns() {
        for (key, what) in HELP {
            assert!(key.len() <= 27 && 28 + what.len() <= 80, "{key}: {what}");
        }
    }
}
