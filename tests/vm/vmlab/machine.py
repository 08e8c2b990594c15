# SPDX-License-Identifier: MIT OR Apache-2.0
"""Boots QEMU, or User-Mode Linux, once with a kernel and an initramfs. Returns the output of the job, and whether the kernel was well.

The console goes to one file and the output of the job to another. A machine has failed if it did not come to the end of the job
(panic, hang, time-out) or if its kernel complained, even if all tests passed.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

from . import common

sys.path.insert(0, str(common.ROOT / "tools"))
from kernel_complaints import is_complaint  # noqa: E402

# The kernel changes its code under a breakpoint. QEMU with a thread for each processor may run into
# a breakpoint that is already gone. This is rare, and it is not a fault of the kernel. Older
# kernels print it without "Oops: ".
TRIPPED = "int3: 0000 "
# A job prints this, and its exit code, when it wants a dump of the machine.
DUMP = "@@dump"
MEMORY_MB = 3072
# Of User-Mode Linux: its disk for swap, and how many processes this machine may have while it runs.
SWAP_MB = 2048
UML_PIDS = 131072
UML_NICE = -10
PID_MAX = pathlib.Path("/proc/sys/kernel/pid_max")


@dataclasses.dataclass
class Run:
    """The result of a boot."""

    ended: bool
    code: int
    output: str
    console: str
    complaints: list
    seconds: float

    @property
    def well(self):
        return self.ended and not self.complaints

    @property
    def tripped(self):
        # Only the first complaint counts: if another complaint came before, it is the one to
        # report.
        return bool(self.complaints) and TRIPPED in self.complaints[0]

    def why(self):
        if self.complaints:
            return "the kernel complained: " + self.complaints[0]
        last = self.console.strip().splitlines()[-1:] or ["nothing on the console"]
        return f"no end after {self.seconds:.0f} s; last on the console: {last[0]}"


def processors(arch, counting, cpus):
    """Software emulation with two processors or more, unless TASKDIAG_VM_ACCEL names another kind (`kvm`), which only runs machines of this
    machine's kind. A machine that counts has one processor, and its clock advances by a nanosecond
    with each instruction."""
    if counting:
        return ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-smp", "1"]
    other = "" if arch.triple else os.environ.get("TASKDIAG_VM_ACCEL")
    return ["-accel", other or "tcg,thread=multi", "-smp", str(cpus)]


def boot(arch, vmlinuz, initramfs, log, timeout, memory=MEMORY_MB, append="", strict=True, counting=False, cpus=2, dump=None):
    """Boots, waits until the machine is off, and reads its output. `log` is a path to which suffixes are added. With `dump`, the
    machine ends when the job prints DUMP, and its memory is then in that file."""
    if arch.name != "um" and not common.have(arch.qemu):
        raise common.Unavailable(f"no {arch.qemu}: install {arch.package} (tools/setup {'arm64' if arch.triple else 'vm'})")
    console, job = log.with_name(f"{log.name}.console"), log.with_name(f"{log.name}.log")
    for f in (console, job):
        f.parent.mkdir(parents=True, exist_ok=True)
        f.write_bytes(b"")
    # Parameters with a "=" that the kernel does not know go to the environment of process 1.
    parameters = f"console={arch.console} JOB={arch.job} panic=-1 oops=panic loglevel=7 {append}".strip()
    began = time.monotonic()
    if arch.name == "um":
        said = user_mode(vmlinuz, initramfs, console, job, timeout, memory, parameters)
    else:
        said = emulated(arch, vmlinuz, initramfs, console, job, timeout, memory, parameters, counting, cpus, dump)
    seconds = time.monotonic() - began
    console, output = console.read_bytes(), job.read_bytes().decode(errors="replace").replace("\r\n", "\n")
    end = re.search(rf"^{DUMP} (\d+)$" if dump else r"^@@end (\d+)$", output, re.M)
    if not console and not end and said.strip():
        raise common.Broken(f"QEMU: {said.decode(errors='replace').strip()}")
    console = console.decode(errors="replace")
    bad = [line.strip() for line in console.splitlines() if is_complaint(line)] if strict else []
    return Run(
        ended=end is not None,
        code=int(end[1]) if end else -1,
        output=output,
        console=console,
        complaints=bad,
        seconds=seconds,
    )


def emulated(arch, vmlinuz, initramfs, console, job, timeout, memory, parameters, counting, cpus, dump=None):
    """Boots QEMU. Returns its output."""
    command = [
        arch.qemu, *arch.machine, *processors(arch, counting, cpus), "-m", str(memory),
        "-display", "none", "-no-reboot", "-nic", "none", "-monitor", "none", "-serial", f"file:{console}",
        *(("-chardev", f"file,id=job,path={job}", "-device", "pci-serial,chardev=job") if arch.triple else ("-serial", f"file:{job}")),
        "-kernel", str(vmlinuz), "-initrd", str(initramfs), "-append", f"{parameters} no_timer_check",
    ]  # fmt: skip
    if dump:
        command[command.index("-monitor") + 1] = f"unix:{dump}.monitor,server=on,wait=off"
        dump.unlink(missing_ok=True)
    machine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        if dump:
            timeout = dump_when_asked(machine, job, dump, timeout)
        said, _ = machine.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        machine.kill()
        said, _ = machine.communicate()
    return said


def dump_when_asked(machine, job, dump, timeout):
    """Waits until the job asks for a dump, writes it while the machine is stopped, and ends the machine. Returns the seconds that are left."""
    end = time.monotonic() + timeout
    while f"{DUMP} ".encode() not in job.read_bytes():
        if machine.poll() is not None or time.monotonic() > end:
            return 1
        time.sleep(1)
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(f"{dump}.monitor")
        monitor.sendall(f"dump-guest-memory {dump}\nquit\n".encode())
        machine.wait(max(end - time.monotonic(), 1))
    return 1


def user_mode(kernel, initramfs, console, job, timeout, memory, parameters):
    """Runs User-Mode Linux on the last processor of this machine. Each of its processes is one of this machine, too."""
    command = [
        kernel, f"mem={memory}M", f"initrd={initramfs}", "con=null", "con0=null,fd:1", "ssl=null", *parameters.split(),
        f"uml_dir={common.cache('uml', 'run')}/",
    ]  # fmt: skip
    # If the lab is ended, this ends with it, and what was changed here is put back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with contextlib.ExitStack() as stack:
        stack.enter_context(common.locked("uml"))
        stack.enter_context(many_processes())
        swap = stack.enter_context(tempfile.NamedTemporaryFile(dir=common.cache("uml", "swap").parent))
        swap.truncate(SWAP_MB << 20)
        out, to = stack.enter_context(open(console, "wb")), stack.enter_context(open(job, "wb"))
        machine = subprocess.Popen(
            [*map(str, command), f"ubd0={swap.name}", f"ssl0=null,fd:{to.fileno()}"], stdin=subprocess.DEVNULL, stdout=out,
            # A process of Linux 6.12 unmaps what the C library has registered for restartable
            # sequences, which kills it.
            stderr=subprocess.STDOUT, env={**os.environ, "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}, pass_fds=[to.fileno()], start_new_session=True,
            preexec_fn=alone,
        )  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired):
            try:
                machine.wait(timeout)
            finally:
                # A kernel that was killed would leave its processes, which wait for it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(machine.pid, signal.SIGKILL)
                machine.wait()
    return b""


def alone():
    """Gives this process the last processor, and the right to go before other programs there. At each switch between the kernel and its
    processes, of which a fork has many, they would run for milliseconds."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, UML_NICE)
        # Where the scheduler gives each session a share, this line has an effect, and the previous
        # one does not.
        pathlib.Path("/proc/self/autogroup").write_text(str(UML_NICE))


@contextlib.contextmanager
def many_processes():
    """Lets this machine have the processes of User-Mode Linux in addition to its own, as long as it
    runs."""
    before = PID_MAX.read_text()
    if int(before) >= UML_PIDS:
        yield
        return
    try:
        PID_MAX.write_text(str(UML_PIDS))
    except OSError as e:
        raise common.Unavailable(f"User-Mode Linux needs {UML_PIDS} processes here, and kernel.pid_max is {before.strip()}: {e}") from e
    try:
        yield
    finally:
        PID_MAX.write_text(before)
