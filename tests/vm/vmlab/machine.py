# SPDX-License-Identifier: MIT OR Apache-2.0
"""Boots QEMU once with a kernel and an initramfs. Returns the output of the job, and whether the kernel was well.

The console goes to one file and the output of the job to another. A machine has failed if it did not come to the end of the job
(panic, hang, time-out) or if its kernel complained, even if all tests passed.
"""

import dataclasses
import os
import re
import subprocess
import sys
import time

from . import common

sys.path.insert(0, str(common.ROOT / "tools"))
from kernel_complaints import is_complaint  # noqa: E402

# The kernel changes its code under a breakpoint. QEMU with a thread for each processor may run into
# a breakpoint that is already gone. This is rare, and it is not a fault of the kernel. Older
# kernels print it without "Oops: ".
TRIPPED = "int3: 0000 "
MEMORY_MB = 3072


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
    machine's kind. A machine that counts has one processor, and its clock goes on by a nanosecond with each instruction."""
    if counting:
        return ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-smp", "1"]
    other = "" if arch.triple else os.environ.get("TASKDIAG_VM_ACCEL")
    return ["-accel", other or "tcg,thread=multi", "-smp", str(cpus)]


def boot(arch, vmlinuz, initramfs, log, timeout, memory=MEMORY_MB, append="", strict=True, counting=False, cpus=2):
    """Boots, waits until the machine is off, and reads its output. `log` is a path to which suffixes are added."""
    if not common.have(arch.qemu):
        raise common.Unavailable(f"no {arch.qemu}: install {arch.package} (tools/setup {'arm64' if arch.triple else 'vm'})")
    console, job = log.with_name(f"{log.name}.console"), log.with_name(f"{log.name}.log")
    for f in (console, job):
        f.parent.mkdir(parents=True, exist_ok=True)
        f.write_bytes(b"")
    command = [
        arch.qemu, *arch.machine, *processors(arch, counting, cpus), "-m", str(memory),
        "-display", "none", "-no-reboot", "-nic", "none", "-monitor", "none", "-serial", f"file:{console}",
        *(("-chardev", f"file,id=job,path={job}", "-device", "pci-serial,chardev=job") if arch.triple else ("-serial", f"file:{job}")),
        "-kernel", str(vmlinuz), "-initrd", str(initramfs),
        # Parameters with a "=" that the kernel does not know go to the environment of process 1.
        "-append", f"console={arch.console} JOB={arch.job} panic=-1 oops=panic loglevel=7 no_timer_check {append}".strip(),
    ]  # fmt: skip
    began = time.monotonic()
    machine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said, _ = machine.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        machine.kill()
        said, _ = machine.communicate()
    seconds = time.monotonic() - began
    console, output = console.read_bytes(), job.read_bytes().decode(errors="replace").replace("\r\n", "\n")
    end = re.search(r"^@@end (\d+)$", output, re.M)
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
