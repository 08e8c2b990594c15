# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares `taskdiag why` with drgn, which reads the same threads from a dump of the stopped machine
with the debug information of its kernel (`drgn_waits.py`).

Tasks of mktask wait for locks of all kinds. Their waits do not end, so both must see the same.
"""

import base64
import copy
import json
import re
import shutil

from . import common, kernels, machine, runs, stock, suites

STATES = ("stuck-lock", "stuck-position", "held-lock", "waits", "lock-files", "lock-abba")
ENGINES = ("bpf", "procfs")
# What must be compared at least: these waits are made by the states.
LOCKS = {"mutex", "rwsem-write", "rt-mutex"}
FILE_LOCKS = ("flock", "ofd-lock", "posix-lock")
# How far apart two times of one answer of BPF may be.
SLACK_S = 0.001
NAMES = {"futex-pi": "rt-mutex"}
COLUMNS = "pid,tid,comm,s,waits_on,waits_for,waits_for_how,wchan,waited"


class Waits(suites.Long):
    """The answers of both engines, before the dump."""

    name = "waits"

    def __init__(self, kernel):
        super().__init__("locks", kernel.promised, kernel.arch)
        self.name, self.timeout = Waits.name, 900

    def script(self):
        programs = self.built()
        lines = ["cd /lab/tmp; mkfifo hold"]
        for at, state in enumerate(STATES):
            lines.append(f"mkdir d{at}; {programs['MKTASK']} {state} /lab/tmp/d{at} <hold >said.{at} 2>&1 &")
        lines.append(f"exec 9>hold; while [ \"$(cat said.* | wc -l)\" -lt {len(STATES)} ]; do sleep 0.2; done; cat said.*; sleep 2")
        for engine in ENGINES:
            lines.append(f"echo 'drgn begin {engine}' >/dev/kmsg; echo '@@{engine}'")
            lines.append(f"{programs['taskdiag']} ps --engine {engine} -e --threads --json -o {COLUMNS} 2>/dev/null")
            lines.append(f"echo 'drgn end {engine}' >/dev/kmsg")
        # The file begins with notes. One of them tells a debugger where the kernel is.
        lines.append(f"echo @@kcore; head -c 16384 /proc/kcore | base64; echo '{machine.DUMP} 0'; sleep 600")
        return lines


def run(name):
    """Boots a kernel, and compares. Returns how many checks failed."""
    kernel = kernels.named(name)
    try:
        image = kernels.get(kernel)
        vmlinux = debug_information(kernel, image.version)
        common.run(common.ROOT / "tools/setup", "drgn")
    except common.Unavailable as e:
        runs.skip(f"{name}: taskdiag beside drgn", str(e))
        return 0
    dump = common.cache("drgn", f"dump-{common.digest(common.ROOT, name)}")
    suite = Waits(kernel)
    try:
        booted, _ = runs.go(kernel, [suite], "drgn", memory=1024, dump=dump)
        if not booted.well:
            return runs.report(kernel, booted, {})
        answers = parts(booted.output)
        info = dump.with_suffix(".vmcoreinfo")
        info.write_bytes(vmcoreinfo(base64.b64decode(answers.pop("kcore"))))
        reader = [common.TARGET / "drgn-venv/bin/python", common.VM / "drgn_waits.py", dump, vmlinux, info]
        out = common.LOGS / f"{name}-drgn.json"
        common.run("sh", "-c", 'out=$1; shift; exec "$@" >"$out"', "sh", out, *reader)
        seen = json.loads(out.read_text())
    finally:
        for f in (dump, dump.with_name(f"{dump.name}.monitor"), dump.with_suffix(".vmcoreinfo")):
            f.unlink(missing_ok=True)
    result = suites.Result()
    for engine in ENGINES:
        answer = json.loads(answers[engine])
        (common.LOGS / f"{name}-drgn-{engine}.json").write_text(answers[engine])
        differences, counts = compare(engine, answer, seen)
        common.say(f"{engine}: compared with drgn: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())) + f"; {len(differences)} differ")
        result.failed += [f"{engine}: {d}" for d in differences] + lacks(engine, counts)
        result.failed += unnoticed(engine, answer, seen)
        result.passed += sum(counts.values())
    return runs.report(kernel, booted, {"drgn": result})


def debug_information(kernel, version):
    """The vmlinux with debug information of a kernel of Debian, from the cache or its package."""
    if kernel.source != "debian":
        raise common.Unavailable("only kernels of Debian have a package with debug information here")
    home = common.cache("drgn", version, "vmlinux").parent
    with common.locked(f"drgn-{version}"):
        if not (home / "vmlinux").exists():
            package, archive = f"linux-image-{version}-dbg", stock.Archive(kernel.source, kernel.where.split(","), kernel.arch.name)
            if not archive.has(package):
                raise common.Unavailable(f"{archive.name} has no {package}; lab fetch --fresh gets a newer kernel, which may have one")
            common.say(f"downloading {package}")
            found = next(p for p in archive.unpack(package, home / "unpacked").rglob("vmlinux") if p.is_file() and not p.is_symlink())
            shutil.move(found, home / "vmlinux")
            shutil.rmtree(home / "unpacked")
    return home / "vmlinux"


def parts(output):
    """The parts of the output of the job, by the marks before them."""
    return {m[1]: m[2] for m in re.finditer(r"^@@(bpf|procfs|kcore)\n(.*?)(?=^@@)", output, re.M | re.S)}


def vmcoreinfo(notes):
    """The content of the note VMCOREINFO in bytes of /proc/kcore."""
    at = notes.index(b"VMCOREINFO\0")
    size = int.from_bytes(notes[at - 8 : at - 4], "little")
    return notes[at + 12 : at + 12 + size]


def compare(engine, answer, seen):
    """(what differs between an answer and drgn, how often each property was compared)."""
    differences, counts, sums = [], {}, []
    begin, end = (seen["marks"][f"{word} {engine}"] / 1e9 for word in ("begin", "end"))

    def same(what, row, ours, theirs):
        counts[what] = counts.get(what, 0) + 1
        if ours != theirs:
            differences.append(f"{what} of {row['tid']} ({row['comm']}) is {ours}, and drgn has {theirs}")

    for row in answer:
        row = dict.fromkeys(COLUMNS.split(",")) | row
        other = seen["threads"].get(str(row["tid"]))
        # A thread that has run since the answer has another wait now.
        if other is None or other["runs"] or row["waited"] is None or other["arrived"] / 1e9 > begin:
            continue
        # When the answer was made, if `waited` is right.
        sums.append((row, row["waited"] + max(other["left"], other["arrived"]) / 1e9, other["lost"] / 1e9))
        kind = NAMES.get(row["waits_on"], row["waits_on"])
        if other["frames"] and row["wchan"] and row["s"] in ("S", "D"):
            # The column leaves out underscores at the beginning. An address may have several names.
            names = [name.lstrip("_") for name in other["frames"][0]]
            same("function", row, row["wchan"] if row["wchan"] not in names else names, names)
        if engine == "bpf":
            if other["kind"] or kind in LOCKS | {"rwsem-read", "semaphore"}:
                same("kind", row, kind, other["kind"])
                same(f"holder of {other['kind']}", row, row["waits_for"], other["owner"])
        elif other["kind"] and row["waits_for"] is not None:
            same("holder of a lock of the kernel", row, row["waits_for"], other["owner"])
        if kind in FILE_LOCKS:
            # Several threads of a process may wait for such a lock.
            holders = seen["file_locks"].get(f"{row['pid']} {kind}", [])
            named = [row["waits_for"]] if row["waits_for"] is not None else row["waits_for_how"]
            answers = [h if len(h) == 1 else "several" for h in holders]
            same(f"holder of {kind}", row, named, named if named in answers else answers)
        same("since when", row, begin <= sums[-1][1] <= end, True)
    # All times of an answer of BPF are from one moment, so the sums are the same.
    middle = sorted(s for _, s, _ in sums)[len(sums) // 2] if sums else 0
    for row, s, lost in sums if engine == "bpf" else ():
        same("since when, by one clock", row, abs(s - middle) <= SLACK_S + lost, True)
    return differences, counts


def lacks(engine, counts):
    """What was not compared, though the states make it."""
    wanted = {"function", "since when", *(f"holder of {kind}" for kind in (*FILE_LOCKS, *(LOCKS if engine == "bpf" else ())))}
    return [f"{engine}: {what} was not compared" for what in sorted(wanted) if what not in counts]


def unnoticed(engine, answer, seen):
    """Mistakes that the comparison does not notice: each is made once in a copy of the answer."""
    missed = []
    for column, wrong in (("waits_for", lambda n: n + 1), ("wchan", lambda w: "x" + w), ("waited", lambda t: t + 1000)):
        bad = copy.deepcopy(answer)
        for row in bad:
            if row.get(column) is not None:
                row[column] = wrong(row[column])
        if len(compare(engine, bad, seen)[0]) <= len(compare(engine, answer, seen)[0]):
            missed.append(f"{engine}: a wrong {column} was not noticed")
    return missed
