# SPDX-License-Identifier: MIT OR Apache-2.0
"""What differs between a machine of this machine's kind (x86-64) and one of another (arm64).

Programs for arm64 are cross-compiled. All other programs of such a machine, and the libraries, come from Debian's packages, which
are unpacked into the cache and never installed.
"""

import dataclasses
import os
import pathlib
import shutil

from . import common, stock

# The processor lacks three features. 5-level page tables cost time. cmpxchg16b is wrong in QEMU
# 7.2: the flags are garbage after it, and a kernel now and then dies of a double fault in its slab
# allocator. With erms, kernels copy with `rep movsb`. Unlike a processor, QEMU does that byte by
# byte, so that a copy of 128 KB took a fifth of a request.
X86_CPU = "max,la57=off,cx16=off,erms=off"
# The Debian release whose packages an arm64 machine has, and the packages. It is not older than the
# libraries of the compiler here.
SUITE = "trixie"
PACKAGES = ("busybox-static", "coreutils", "iproute2", "libc-bin", "libc6", "libgcc-s1", "lsof", "mount", "procps", "util-linux")


@dataclasses.dataclass(frozen=True)
class Arch:
    """A kind of machine, by Debian's name of it."""

    name: str
    qemu: str
    package: str
    """The Debian package that has `qemu`."""
    machine: tuple
    console: str
    job: str
    """The terminal to which the job writes."""
    triple: str = ""
    """The target that programs are compiled for. It is empty for this machine's own."""
    tools: str = ""
    """The prefix of the names of the cross compiler and its tools."""

    def cargo(self):
        """Arguments of cargo, and the environment that it needs."""
        if not self.triple:
            return [], None
        compiler = f"{self.tools}gcc"
        if not common.have(compiler):
            raise common.Unavailable(f"no {compiler}, which compiles programs for {self.name} (tools/setup arm64)")
        linker = f"CARGO_TARGET_{self.triple.upper().replace('-', '_')}_LINKER"
        return ["--target", self.triple], {**os.environ, "CC": compiler, linker: compiler}

    def root(self):
        """The directory with the programs of the machine: `/`, or one in the cache."""
        return pathlib.Path("/") if not self.triple else unpacked(self)

    def libraries(self, program, of_program):
        """The shared libraries of a program, as (path there, file here). `of_program` asks the loader of this machine."""
        if not self.triple:
            return [(path, pathlib.Path(path).resolve()) for path in of_program(program)]
        # The loader of this machine cannot list the libraries of a foreign program, so all of them
        # are copied.
        root = self.root()
        directory = root / "usr/lib/aarch64-linux-gnu"
        found = [(f"/lib/aarch64-linux-gnu/{f.name}", f.resolve()) for f in sorted(directory.glob("*.so*")) if f.is_file()]
        loader = directory / "ld-linux-aarch64.so.1"
        return [*found, ("/lib/ld-linux-aarch64.so.1", loader.resolve())]


AMD64 = Arch("amd64", "qemu-system-x86_64", "qemu-system-x86", ("-cpu", X86_CPU), "ttyS0", "ttyS1")
# The board has one serial port of its own, for the console. Pointer authentication by QEMU's
# default algorithm takes most of the time.
ARM64 = Arch(
    "arm64", "qemu-system-aarch64", "qemu-system-arm", ("-machine", "virt", "-cpu", "max,pauth-impdef=on"), "ttyAMA0", "ttyS0",
    "aarch64-unknown-linux-gnu", "aarch64-linux-gnu-",
)  # fmt: skip
# User-Mode Linux: a kernel that is a program of this machine, so its own code runs as fast as it
# would on the machine itself.
UML = Arch("um", "", "", (), "tty0", "ttyS0")


def of_package(package):
    """The kind of machine that a kernel's package is for."""
    return ARM64 if "-arm64" in package else AMD64


def unpacked(arch):
    """The packages of PACKAGES, and those that they need, in a directory of the cache."""
    home = common.cache("root", common.digest(arch.name, SUITE, *PACKAGES), "done").parent
    with common.locked(f"root-{arch.name}"):
        if not (home / "done").exists():
            common.say(f"{arch.name}: downloading programs of Debian {SUITE}")
            archive = stock.Archive("debian", [SUITE], arch.name)
            for deb in archive.download(PACKAGES):
                common.run("dpkg-deb", "-x", deb, home / "root")
            shutil.rmtree(home / "root/usr/share", ignore_errors=True)
            (home / "done").touch()
    return home / "root"
