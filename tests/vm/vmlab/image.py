# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes the initramfs: busybox, programs of this machine with their libraries, the tests, and the job.

It is a plain cpio archive that is written here, so that neither root nor cpio is needed. Files lie at the same paths
as on this machine, because the tests know where `mktask` is.
"""

import contextlib
import os
import pathlib
import re
import stat
import time

from . import arch as archs
from . import common

# Programs that busybox does not have, or not in the form that the tests need. The timeout of
# busybox leaves a process that ends up to a second after the program, and the kernel's selftest
# proc:read fails if any process ends while it reads.
PROGRAMS = ("ps", "setpriv", "unshare", "mount", "umount", "script", "install", "pmap", "lsof", "lsfd", "ss", "timeout")
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
GROUP = "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"


class Tree:
    """The content of the archive: absolute path → (mode, data or path or link or device)."""

    def __init__(self, arch=archs.AMD64):
        self.entries = {}
        self.arch = arch

    def directory(self, path, mode=0o755):
        if path != "/" and path not in self.entries:
            self.directory(os.path.dirname(path))
            self.entries[path] = (stat.S_IFDIR | mode, b"")

    def data(self, path, data, mode=0o644):
        self.directory(os.path.dirname(path))
        self.entries[path] = (stat.S_IFREG | mode, data.encode() if isinstance(data, str) else data)

    def link(self, path, to):
        self.directory(os.path.dirname(path))
        self.entries[path] = (stat.S_IFLNK | 0o777, to.encode())

    def file(self, source, path=None, strip=False):
        """Adds a file of this machine, at its own path if no other is given. Debug information is removed on request."""
        source = pathlib.Path(source)
        self.data(str(path or source), stripped(source, self.arch) if strip else source, source.stat().st_mode & 0o7777)

    def program(self, source, path=None, strip=False):
        """Adds a program and the libraries that it needs. They keep the names of their files, by which the drop-in knows versions."""
        self.file(source, path, strip)
        for lib, here in self.arch.libraries(source, libraries):
            if lib not in self.entries and here.name != os.path.basename(lib):
                self.file(here, os.path.join(os.path.dirname(lib), here.name))
                self.link(lib, here.name)
            elif lib not in self.entries:
                self.file(here, lib)

    def write(self, to):
        """Writes the archive (newc)."""
        with open(to, "wb") as out:
            number = 0
            device = {"/dev/console": (0o600, 5, 1), "/dev/null": (0o666, 1, 3)}
            self.directory("/dev")
            for path, (mode, major, minor) in device.items():
                self.entries[path] = (stat.S_IFCHR | mode, (major, minor))
            for path, (mode, data) in [*sorted(self.entries.items()), ("/TRAILER!!!", (0, b""))]:
                rdev = data if isinstance(data, tuple) else (0, 0)
                body = data.read_bytes() if isinstance(data, pathlib.Path) else b"" if isinstance(data, tuple) else data
                name = path[1:].encode() + b"\0"
                number += 1
                numbers = [number, mode, 0, 0, 1, 0, len(body), 0, 0, *rdev, len(name), 0]
                head = b"070701" + b"".join(b"%08X" % n for n in numbers) + name
                out.write(head + b"\0" * (-len(head) % 4) + body + b"\0" * (-len(body) % 4))


def stripped(source, arch):
    """A copy without debug information in the cache. The programs of the tests become about 90 %
    smaller."""
    state = source.stat()
    copy = common.cache("stripped", common.digest(source, state.st_mtime_ns, state.st_size))
    if not copy.exists():
        part = copy.with_suffix(f".{os.getpid()}")
        common.run(f"{arch.tools}objcopy", "--strip-debug", source, part)
        part.rename(copy)
        forget_old(copy.parent)
    os.utime(copy)
    return copy


def forget_old(directory):
    """Removes copies that no lab has used for two days. Each build of a program makes another one."""
    for copy in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - copy.stat().st_mtime > 2 * 86400:
                copy.unlink()


def libraries(program):
    """The shared libraries of a program, as the loader names them. A static program has none."""
    return re.findall(r"(/\S+) \(0x", common.output("ldd", program))


def base(tree):
    """The files that every machine has: busybox, programs, users, init."""
    root, own = tree.arch.root(), "/bin/busybox"
    busybox = next((p for d in ("bin", "usr/bin") if (p := root / d / "busybox").exists()), None)
    if busybox is None or libraries(busybox):
        raise common.Unavailable("no static busybox: install busybox-static (tools/setup vm)")
    if tree.arch.triple and not os.path.exists(own):
        raise common.Unavailable(f"no {own}, which knows its applets: install busybox-static (tools/setup vm)")
    for d in ("/proc", "/sys", "/dev", "/run", "/root", "/var/tmp", "/bin", "/sbin", "/lab", "/lab/tmp"):
        tree.directory(d)
    tree.directory("/tmp", 0o1777)
    tree.file(busybox, own)
    # A busybox for another architecture does not run here, but has the same applets as ours.
    for applet in common.output(own if tree.arch.triple else busybox, "--list").split():
        if applet != "busybox":
            tree.link(f"/bin/{applet}", "busybox")
    tree.link("/usr/bin", "../bin")
    for program in PROGRAMS:
        found = next((p for d in ("usr/bin", "bin", "usr/sbin", "sbin") if (p := root / d / program).exists()), None)
        if found is not None:
            tree.program(found, f"/bin/{program}")
    for locale in pathlib.Path("/usr/lib/locale/C.utf8").rglob("*"):
        if locale.is_file():
            tree.file(locale)
    tree.data("/etc/passwd", PASSWD)
    tree.data("/etc/group", GROUP)
    tree.data("/etc/os-release", 'NAME="taskdiag lab"\n')
    tree.file(common.VM / "init", "/init")
    return tree
