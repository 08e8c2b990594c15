# SPDX-License-Identifier: MIT OR Apache-2.0
"""Has the cases of the service: what an ordinary user gains, and what the service costs for one user and for many."""

import array
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from cases import TASKDIAG, case
from measuring import ROOT, RUN_TIMEOUT, Failed, gopsutil, median, one_run

DAEMON = "target/release/taskdiagd"
# The uid of the service, and that of its clients.
ITS_USER, USER = 65533, 65534
# The request of a poller: processes with BASE and STAT. Both structs are explained in
# taskdiag::service and uapi/task_diag.h.
BASE, STAT = 1 << 0, 1 << 4
POLLERS, SECONDS = 200, 10


def as_user(uid, *more):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *more]


class Service:
    """A running service with a socket that root opened, as systemd does."""

    def __init__(self, directory):
        self.path = f"{directory}/socket"
        for program in (TASKDIAG, DAEMON):
            shutil.copy(ROOT / program, directory)
        listener = socket.socket(socket.AF_UNIX)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        listener.bind(self.path)
        os.chmod(self.path, 0o666)
        listener.listen(4096)
        caps = "-all,+bpf,+perfmon"
        caps = [f"--{which}={caps}" for which in ("inh-caps", "ambient-caps", "bounding-set")]
        command = as_user(ITS_USER, *caps, "--no-new-privs", f"{directory}/taskdiagd", "--idle-exit=600")
        # Descriptor 3 for the service, and its own number, which only the child knows.
        script = f'exec 3<&{listener.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
        self.process = subprocess.Popen(["sh", "-c", script, "sh", *command], pass_fds=[listener.fileno()])

    def cpu_ms(self):
        """Its CPU time until now, in ms, of all threads."""
        tasks = f"/proc/{self.process.pid}/task"
        files = (f"{tasks}/{tid}/schedstat" for tid in os.listdir(tasks))
        return sum(int(open(f).read().split()[0]) for f in files) / 1e6


@contextlib.contextmanager
def service(b):
    if os.geteuid() != 0:
        raise Failed("needs root, to be several users")
    if not (ROOT / DAEMON).exists():
        raise Failed(f"{DAEMON} is not there: make build")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        it = Service(directory)
        try:
            yield it, directory
        finally:
            it.process.kill()
            it.process.wait()



def against_ps(b, at_least):
    with service(b) as (it, directory):
        mine = as_user(USER, "env", f"TASKDIAG_SOCKET={it.path}", f"{directory}/taskdiag", "ps")
        plain = as_user(USER, f"{directory}/taskdiag", "ps", "--engine", "procfs")
        # The service reads the command lines of all processes once before it may show them.
        for _ in range(4):
            one_run(mine, f"{directory}/output")
            time.sleep(1.5)
        stats = subprocess.run([*mine, "--stats"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=RUN_TIMEOUT)
        if "engine service" not in stats.stderr:
            raise Failed(f"the service did not answer: {stats.stderr[-400:]}")
        before, rounds = it.cpu_ms(), 7
        r = b.compare({"taskdiag, service": mine, "ps aux": as_user(USER, "ps", "aux")}, rounds=rounds)
        # One more run is the warm-up.
        its = (it.cpu_ms() - before) / (rounds + 1)
        b.note(f"  {'the service itself':<28} cpu {its:9.2f} ms a request")
        b.ratio("wall, ps aux / taskdiag of an ordinary user", r, "ps aux", "taskdiag, service", "wall_ns", at_least=at_least)
        both = median(r["taskdiag, service"], "cpu_us") / 1e3 + its
        b.figure("cpu, ps aux / taskdiag and service", median(r["ps aux"], "cpu_us") / 1e3 / both)
        r = {**r, **b.compare({"taskdiag, procfs": plain}, rounds=3)}
        b.ratio("wall, procfs / service", r, "taskdiag, procfs", "taskdiag, service", "wall_ns")


@case("service-50k", ("procs", 50_000))
def service_50k(b):
    """50,000 processes: the default view of an ordinary user with the service, against that user's ps aux"""
    against_ps(b, at_least=15)


@case("service-10k", ("procs", 10_000))
def service_10k(b):
    """10,000 processes: the same, and 200 users who poll each second against one"""
    against_ps(b, at_least=None)
    polled(b)


@case("go-10k", ("procs", 10_000))
def go_10k(b):
    """10,000 processes: the Go module of an ordinary user with the service, against gopsutil; CPU of both sides"""
    if not gopsutil():
        raise Failed("bench/go did not build")
    with service(b) as (it, directory):
        shutil.copy(gopsutil(), directory)
        command = as_user(USER, "env", f"TASKDIAG_SOCKET={it.path}", f"PATH={directory}:{os.environ['PATH']}", f"{directory}/gopsutil")
        rounds = 11

        def one(*more, rounds=rounds):
            before = it.cpu_ms()
            done = subprocess.run([*command, str(rounds), *more], stdout=subprocess.PIPE, text=True, timeout=RUN_TIMEOUT, check=True)
            # One more round is the warm-up.
            return done.stdout.split(), (it.cpu_ms() - before) / (rounds + 1)

        theirs, _ = one()
        ours, its = one("taskdiag", rounds=31)
        if ours[2] != "service":
            raise Failed(f"the {ours[2]} answered")
        mine = int(ours[0]) / 1e6
        b.note(f"  gopsutil {int(theirs[0]) / 1e6:.1f} ms for {theirs[1]} processes")
        b.note(f"  the Go module {mine:.2f} ms for {ours[1]} processes, and the service {its:.2f} ms")
        b.figure("cpu, gopsutil / Go module and service", int(theirs[0]) / 1e6 / (mine + its), at_least=20)


@case("service-200", ("procs", 130))
def service_200(b):
    """about 200 processes: a request for BASE to the service, both sides together"""
    if not b.rust:
        raise Failed("bench/rust did not build")
    with service(b) as (it, directory):
        shutil.copy(ROOT / b.rust / "refresh", directory)
        for who, bar in (("service", 0.5), ("service-session", None)):
            command = as_user(USER, "env", f"TASKDIAG_SOCKET={it.path}", f"{directory}/refresh", who)
            rounds = 101
            subprocess.run([*command, "5"], stdout=subprocess.DEVNULL, check=True, timeout=RUN_TIMEOUT)
            before = it.cpu_ms()
            done = subprocess.run([*command, str(rounds)], stdout=subprocess.PIPE, check=True, text=True, timeout=RUN_TIMEOUT)
            ns, processes = map(int, done.stdout.split())
            # One more round is not in the median.
            its = (it.cpu_ms() - before) / (rounds + 1)
            b.note(f"  {who:<16} client {ns / 1e6:.3f} ms, service {its:.3f} ms of CPU a request; {processes} processes")
            b.figure(f"CPU of a request for BASE, both sides, ms ({who})", ns / 1e6 + its, at_most=bar)


def question(max_age_ms):
    request = struct.pack("=IHHII", 16 + 48, 16, 0, 0, 0) + struct.pack("=QQIIQQII", BASE | STAT, 0, 0, 0, 0, 0, 0, 0)
    return struct.pack("=IHHII", 0x53444154, 1, 0, max_age_ms, len(request)) + request


def poll(path, uid, until, offset, max_age_ms):
    """A user who asks once a second, in a process of its own. The exit code is 0 if each question had an answer."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    time.sleep(offset)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(path)
    while time.monotonic() < until:
        s.sendall(question(max_age_ms))
        head, extra, _, _ = s.recvmsg(16, socket.CMSG_SPACE(4))
        fds = array.array("i")
        for level, kind, data in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[:4])
        _, kind, why, length = struct.unpack("=IHHQ", head)
        if kind == 1:
            left = length
            while left:
                left -= len(s.recv(min(left, 65536)))
        elif kind == 2 and fds:
            os.close(fds[0])
        else:
            return 10 + why
        time.sleep(1)
    return 0


def polling(it, users, max_age_ms):
    """CPU time of the service in ms for some users who ask for `SECONDS`, once a second each, for an answer that is not older than
    that."""
    before = it.cpu_ms()
    until = time.monotonic() + SECONDS
    children = []
    for n in range(users):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.alarm(SECONDS * 10)
                code = poll(it.path, 40_000 + n, until, n / users, max_age_ms)
            finally:
                os._exit(code)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    bad = [c for c in codes if c]
    if bad:
        raise Failed(f"{len(bad)} of {users} pollers had no answer (codes {sorted(set(bad))})")
    return it.cpu_ms() - before


def polled(b):
    sys.stdout.flush()
    for max_age_ms in (1000, 500):
        with service(b) as (it, _):
            polling(it, 1, max_age_ms)
            one, many = polling(it, 1, max_age_ms), polling(it, POLLERS, max_age_ms)
            b.note(f"  the service: {one / SECONDS:.2f} ms of CPU a second for one user, {many / SECONDS:.2f} for {POLLERS}, max-age {max_age_ms} ms")
            b.figure(f"CPU of the service, {POLLERS} users / one, max-age {max_age_ms} ms", many / one, at_most=3)
