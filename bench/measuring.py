# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes loads, times runs and counts their system calls. It knows no cases, and raises Failed if a number would be wrong."""

import contextlib
import functools
import os
import pathlib
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = HERE / "out"
# The time that one run may take, in seconds. psutil with 100,000 threads is the slowest useful one.
RUN_TIMEOUT = 120


class Failed(Exception):
    """The measurement cannot be made. The text says why."""


def build_tools():
    """The C helpers. They are static, so that they are small and start fast."""
    OUT.mkdir(exist_ok=True)
    for name in ("load", "memload", "measure", "cloop", "heldloop", "lateness"):
        source, binary = HERE / f"{name}.c", OUT / name
        if source.exists() and (
            not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime
        ):
            command = ["cc", "-O2", "-Wall", "-static", "-o", binary, source]
            subprocess.run(command, check=True)


def build_rust():
    """The directory of the floor and the peer in Rust, or None, with a message that says why."""
    manifest = HERE / "rust" / "Cargo.toml"
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    done = subprocess.run(
        [ROOT / "tools" / "with-rust", "cargo", "build", "--release", "--quiet",
         "--manifest-path", manifest, "--target-dir", target],
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        print(f"bench: bench/rust did not build, its peers are left out\n{done.stderr}", file=sys.stderr)
        return None
    return os.path.relpath(os.path.join(target, "release"), ROOT)


@functools.cache
def gopsutil():
    """The peer in Go, or None, with a message that says why. It is built when a case first wants it."""
    if not shutil.which("go"):
        print("bench: there is no go, so gopsutil is left out; tools/setup bench gets it", file=sys.stderr)
        return None
    # The build uses the installed Go, because another toolchain would be downloaded.
    done = subprocess.run(
        ["go", "build", "-o", OUT / "gopsutil", "."],
        cwd=HERE / "go",
        env={**os.environ, "GOTOOLCHAIN": "local"},
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        print(f"bench: bench/go did not build, so gopsutil is left out\n{done.stderr}", file=sys.stderr)
        return None
    return OUT / "gopsutil"


@contextlib.contextmanager
def limits():
    """Raises limits for the largest load until the end."""
    wanted = ["kernel.pid_max=4194304", "kernel.threads-max=500000", "vm.max_map_count=1000000"]
    keeper = subprocess.Popen(
        [sys.executable, HERE / "limits.py", *wanted],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    keeper.stdout.readline()
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (resource.RLIM_INFINITY,) * 2)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
        keeper.stdin.close()
        keeper.wait()


@contextlib.contextmanager
def load(spec):
    """Makes the tasks of `spec`: None, or arguments of load.c or memload.c. Yields one of their pids."""
    if spec is None:
        yield None
        return
    program = "load" if spec[0] in ("procs", "threads", "files", "table") else "memload"
    process = subprocess.Popen(
        [OUT / program, *map(str, spec)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        ready = process.stdout.readline().split()
        if ready[:1] != [b"ready"]:
            raise Failed(f"the load {' '.join(map(str, spec))} could not be made")
        yield int(ready[1]) if ready[1:] else process.pid
    finally:
        # The end of its input ends the load. All of its tasks have gone when it has ended.
        process.stdin.close()
        process.wait()


def one_run(command, output, timeout=RUN_TIMEOUT):
    """Runs a command once. Returns a dict with wall_ns, user_us, system_us, peak_rss_kib, status, and output lines.

    After `timeout` seconds the command is ended with all processes that it started, and TimeoutExpired is raised.
    """
    process = subprocess.Popen(
        [OUT / "measure", output, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except BaseException:
        # It runs in a session of its own, so the process group contains no other process.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
    names = ("wall_ns", "user_us", "system_us", "peak_rss_kib", "status")
    numbers = done.stdout.split()
    if done.returncode or len(numbers) != len(names):
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
    row = dict(zip(names, map(int, numbers)))
    # 3 is our code for a partial answer. On a machine that hides something from root, every answer
    # is partial.
    if row["status"] not in (0, 3):
        raise Failed(f"{' '.join(command)}: exit code {row['status']}: {done.stderr.strip()}")
    with open(output, "rb") as f:
        row["lines"] = sum(block.count(b"\n") for block in iter(lambda: f.read(1 << 20), b""))
    return row


def alternately(commands, rounds, note):
    """Runs the commands in turn, A B A B, `rounds` times after one warm-up. Returns {label: [row...]}.

    `note(label, round, row)` is called with each row, also with those of the warm-up (round 0).
    """
    rows = {label: [] for label in commands}
    with tempfile.TemporaryDirectory(dir=OUT) as tmp:
        for turn in range(rounds + 1):
            for label, command in commands.items():
                row = one_run(command, os.path.join(tmp, "output"))
                note(label, turn, row)
                if turn:
                    rows[label].append(row)
    return rows


def same_rows(rows, a, b):
    """Refuses to compare answers of different sizes, because one of the two did not do the work."""
    x, y = (statistics.median(r["lines"] for r in rows[label]) for label in (a, b))
    if abs(x - y) > 20 + 0.01 * max(x, y):
        raise Failed(f"{a} printed {x:.0f} lines and {b} {y:.0f}: not the same job")


def median(rows, what):
    if what == "cpu_us":
        return statistics.median(r["user_us"] + r["system_us"] for r in rows)
    return statistics.median(r[what] for r in rows)


def proc_inode_filter():
    """A perf filter for allocations of /proc inodes, or None if it cannot be made."""
    with open("/proc/kallsyms") as f:
        for line in f:
            if line.split()[2] == "proc_alloc_inode":
                start = int(line.split()[0], 16)
                end = next(int(n.split()[0], 16) for n in f if int(n.split()[0], 16) > start)
                return f"call_site >= {start:#x} && call_site < {end:#x}" if start else None
    return None


def counted(command, warm=False):
    """(system calls, /proc inodes made) of one untimed run. None stands for a number that cannot be counted here.

    The kernel counts both at their tracepoints, for this command and its children alone. So other
    processes do not matter, and nothing is slowed as strace would slow it. Unused /proc inodes are
    dropped first, because the cache would hide those that the command needs. `warm` runs it once after that.
    """
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")
    if warm:
        quiet(command)
    with tempfile.TemporaryDirectory(dir=OUT) as tmp:
        stats = os.path.join(tmp, "stats")
        where = proc_inode_filter()
        events = ["-e", "raw_syscalls:sys_enter"]
        if where:
            events += ["-e", "kmem:kmem_cache_alloc", "--filter", where]
        tool = ["perf", "stat", "-x", ",", "-o", stats, *events, "--", *command]
        if shutil.which("perf") and quiet(tool):
            text = pathlib.Path(stats).read_text()
            number = lambda event: (m := re.search(rf"^(\d+),.*{event}", text, re.M)) and int(m[1])
            calls, inodes = number("raw_syscalls"), number("kmem_cache_alloc")
            # A tracepoint that the kernel reports as "not counted" must not pass as 0 events.
            if calls:
                return calls, inodes
    return strace_count(command), None


def strace_count(command, call=None):
    """The system calls of a command as strace counts them, or those named `call`. None without strace."""
    if not shutil.which("strace"):
        return None
    with tempfile.TemporaryDirectory(dir=OUT) as tmp:
        stats = os.path.join(tmp, "stats")
        only = ["-e", f"trace={call}"] if call else []
        if not quiet(["strace", "-f", "-c", *only, "-o", stats, *command]):
            return None
        total = re.search(r"^100\.00 +\S+ +\S+ +(\d+) .*total$", pathlib.Path(stats).read_text(), re.M)
        return int(total[1]) if total else 0


def quiet(command):
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=RUN_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (0, 3)


@functools.cache
def python_with_psutil():
    """The Python of PATH, or the one that Debian's python3-psutil is for. None if psutil is not installed."""
    pythons = [p for p in ("python3", "/usr/bin/python3") if shutil.which(p)]
    return next((p for p in pythons if quiet([p, "-c", "import psutil"])), None)
