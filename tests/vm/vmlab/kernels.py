# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads the list of kernels (`tests/vm/kernels`), and gets any one of them."""

import dataclasses
import os
import pathlib

from . import arch, build, common, stock


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str
    source: str
    where: str
    package: str
    promised: tuple
    suite: str = "full"
    """Which test programs run there, `full` or `short`."""

    @property
    def arch(self):
        """The kind of machine that it runs on."""
        if self.source == "build" and build.FLAVOURS[self.where].arch == "um":
            return arch.UML
        return arch.of_package(self.package)

    @property
    def series(self):
        """Which of our series it has: the name of one, all, or none."""
        return build.FLAVOURS[self.where].which if self.source == "build" else None


@dataclasses.dataclass(frozen=True)
class Image:
    """A kernel on the disk."""

    kernel: Kernel
    path: pathlib.Path
    version: str
    # The modules of the kernel that the machine loads, in order.
    modules: tuple = ()


def listed():
    """All kernels of the list, in its order."""
    found = []
    for line in (common.VM / "kernels").read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            name, source, where, package, promised, suite = words
            if suite not in ("full", "short"):
                raise common.Broken(f"tests/vm/kernels: {name} has the suite {suite}; there are full and short")
            found.append(Kernel(name, source, where, package, tuple(promised.split(",")), suite))
    return found


def named(name):
    """A kernel of the list, a flavour that is built but not in the list (`ours-debug`), or the file of any kernel."""
    for k in listed():
        if k.name == name:
            return k
    if name in build.FLAVOURS:
        flavour = build.FLAVOURS[name]
        kernel = ("kernel",) if flavour.which in (build.ALL, "task_diag", "task-ioctl") else ()
        bpf = ("bpf",) if build.TEST in flavour.fragments else ()
        return Kernel(name, "build", name, "-", ("procfs", *bpf, *kernel))
    if os.path.isfile(name):
        return Kernel(os.path.basename(name), "file", os.path.abspath(name), "-", ("procfs",))
    names = ", ".join([k.name for k in listed()] + list(build.FLAVOURS))
    common.die(f"no kernel {name} in tests/vm/kernels; there are {names}")


def get(kernel, fresh=False):
    """The image of a kernel, from the cache if it is there. With `fresh`, it is the newest of the archive. Raises Unavailable."""
    if kernel.source == "file":
        path, version = pathlib.Path(kernel.where), "a file"
    elif kernel.source == "build":
        path, version = build.image(kernel.where)
    else:
        where = (kernel.source, kernel.where.split(","), kernel.arch.name)
        path, version, modules = stock.image(kernel.name, where, kernel.package, fresh)
        return Image(kernel, path, version, tuple(modules))
    return Image(kernel, path, version)
