# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds kernels from Debian's linux-source packages: without our series, with all of them or one, with and without debugging.

The series are for linux-source-6.12. Flavours whose names end in `-7.3` are built from linux-source-7.3 with the series as they
are for that kernel (docs/kernel/kernel-7.3.md).

The finished kernel is cached by a hash of source version, series, config and compiler. Build trees stay in the
cache, too. A changed series touches only the files that it changes, so the next build is short. The source itself is
unpacked once and never written to. The build trees are hard links to it.
"""

import dataclasses
import functools
import os
import pathlib
import re
import shutil

from . import common, stock


@dataclasses.dataclass(frozen=True)
class Base:
    """A source of Debian that the series are for."""

    package: str
    newer: bool = False
    """The patches are made from those of kernel/series by `kernel/newer`."""
    suites: tuple = ()
    """The origin of the package, if apt of this machine does not have it."""


KERNEL = common.ROOT / "kernel"
V6_12 = Base("linux-source-6.12")
# Backports are listed before sid, which has had an older version than they have. Experimental has
# the release candidates of the next one.
V7_3 = Base("linux-source-7.3", True, ("trixie-backports", "sid", "experimental"))
# The series in the order in which they go on top of each other. Each of them also applies alone.
SERIES = ("readdir", "wait", "procdirs", "smaps", "task_diag")
# The first patches of a series that can be sent without the rest, as kernel/README.md says: name →
# (series, how many).
PARTS = {"procdirs-2": ("procdirs", 2), "smaps-2": ("smaps", 2), "task_diag-8": ("task_diag", 8)}
ALL = "all"
# Alternatives to a series, to be measured next to it: kernel/alternatives/NAME/series lists the
# patches, both shared and new ones.
ALTERNATIVES = KERNEL / "alternatives"
# A new tree is a copy of this one, so that only files that its patches touch are built. Its
# config must be the same: KUnit, for one, changes task_struct.
SEEDED_FROM = "base"


@dataclasses.dataclass(frozen=True)
class Flavour:
    """A kernel that is built here."""

    which: str | None
    """The series that are applied: one, `all`, or none."""
    fragments: tuple
    """The fragments of kernel/config, in their order."""
    base: Base = V6_12
    arch: str = "x86"
    """`um` is User-Mode Linux, a program of this machine."""

    @property
    def target(self):
        """The target of make, and the path of the result in the tree."""
        return ("linux", "linux") if self.arch == "um" else ("bzImage", "arch/x86/boot/bzImage")


TEST, SERIES_TOO, DEBUG, LOCKSTAT = "test.config", "series.config", "debug.config", "lockstat.config"
FLAVOURS = {
    "base": Flavour(None, (TEST,)),
    "ours": Flavour(ALL, (TEST, SERIES_TOO)),
    "base-debug": Flavour(None, (TEST, DEBUG)),
    "ours-debug": Flavour(ALL, (TEST, SERIES_TOO, DEBUG)),
    "base-lockstat": Flavour(None, (TEST, LOCKSTAT)),
    "ours-lockstat": Flavour(ALL, (TEST, SERIES_TOO, LOCKSTAT)),
    **{name: Flavour(name, (TEST, SERIES_TOO)) for name in (*SERIES, *PARTS)},
    **{f"alt-{p.parent.name}": Flavour(p.parent.name, (TEST,)) for p in sorted(ALTERNATIVES.glob("*/series"))},
    **{f"alt-{p.parent.name}-debug": Flavour(p.parent.name, (TEST, DEBUG)) for p in sorted(ALTERNATIVES.glob("*/series"))},
}
NEWER = "-7.3"
FLAVOURS.update(
    {
        name + NEWER: Flavour(f.which, (TEST, "7.3.config", *f.fragments[1:]), V7_3)
        for name, f in FLAVOURS.items()
        if not name.startswith("alt-")
    }
)
FLAVOURS.update({f"uml-{name}": Flavour(which, ("small.config", "um.config"), arch="um") for name, which in (("base", None), ("ours", ALL))})
# What can be sent: kernel/send/NAME/series lists the patches. Each has a small kernel, also for
# User-Mode Linux, and SMALL is without any.
SENT = KERNEL / "send"
SMALL = "small-7.3"
UML = "uml-"
for name, which in ((SMALL, None), *((f"send-{p.parent.name}", p.parent.name) for p in sorted(SENT.glob("*/series")))):
    FLAVOURS[name] = Flavour(which, ("small.config", "small-pc.config"), V7_3)
    FLAVOURS[UML + name] = Flavour(which, ("small.config", "um.config", "um-7.3.config"), V7_3, "um")
NEEDED = ("gcc", "make", "flex", "bison", "bc", "patch", "xz", "tar", "pahole")


def series(which=ALL, base=V6_12):
    """The patches of all series, of one or its first part, of an alternative, or of none, in their order."""
    home = newer_series() if base.newer else common.SERIES
    for other in (ALTERNATIVES / str(which) / "series", SENT / str(which) / "series"):
        if other.exists():
            return [home / n.removeprefix("series/") if n.startswith("series/") else KERNEL / n for n in listed(other)]
    one, count = PARTS.get(which, (which, None))
    return [home / n for n in listed(home / "series") if one in (ALL, n.split("/")[-2])][:count]


@functools.cache
def newer_series():
    """The directory of the patches for Linux 7.3. Each state of kernel/series and of the differences has its own, which stays as it is."""
    sources = [KERNEL / "newer", KERNEL / "series-7.3.diff", *(common.SERIES / n for n in ("series", *listed(common.SERIES / "series")))]
    home = common.cache("series-7.3", common.digest(*sources))
    with common.locked("series-7.3"):
        if not home.exists():
            part = home.with_name(f"{home.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            common.run(KERNEL / "newer", "make", part)
            part.rename(home)
    return home


def patches_of(flavour):
    """The patches that a flavour has, in their order."""
    return series(FLAVOURS[flavour].which, FLAVOURS[flavour].base)


def listed(file):
    """The names in a list of patches."""
    names = [line.split("#")[0].strip() for line in file.read_text().splitlines()]
    return [n for n in names if n]


def short(patch):
    """The name of a patch with that of its series."""
    return str(patch.relative_to(common.SERIES))


def options(patches):
    """The Kconfig options that patches add, as lines that turn them on."""
    added = [re.findall(r"^\+(?:menu)?config (\w+)$", p.read_text(errors="replace"), re.M) for p in patches]
    return "".join(f"CONFIG_{name}=y\n" for names in added for name in names)


def tree_of(flavour):
    """The name of the build tree of a flavour. A part uses the tree of its series, and what can be
    sent uses the tree of the kernel without it, so that little is built again."""
    if flavour.removeprefix(UML).startswith("send-"):
        return (UML if flavour.startswith(UML) else "") + SMALL
    plain = flavour.removesuffix(NEWER)
    return PARTS.get(plain, (plain, None))[0] + flavour.removeprefix(plain)


def image(flavour):
    """(path of the kernel, version) of a flavour. It is built if the cache does not have it."""
    patches = patches_of(flavour)
    target, made = FLAVOURS[flavour].target
    fragments = [p for f in FLAVOURS[flavour].fragments if (p := common.CONFIG / f).exists()]
    package = FLAVOURS[flavour].base.package
    version, tarball = source(FLAVOURS[flavour].base)
    with common.locked(f"linux-{tree_of(flavour)}"):
        compiler = common.output("gcc", "--version").split("\n")[0]
        key = common.digest(version, compiler, *patches, *fragments)
        kernel = common.cache("kernels", f"{flavour}-{key}", target)
        if not kernel.exists():
            lacking = [p for p in NEEDED if not common.have(p)]
            if lacking:
                raise common.Unavailable(f"{flavour}: no {', '.join(lacking)} to build it with (tools/setup vm)")
            common.say(f"{flavour}: building {package} {version} with {len(patches)} patches; some minutes")
            tree = Tree(tree_of(flavour), version, tarball, FLAVOURS[flavour].arch)
            tree.apply(patches)
            tree.configure(fragments, options(patches))
            tree.make([target])
            shutil.copyfile(tree.dir / ".config", kernel.with_name("config"))
            part = kernel.with_name(f"{target}.part")
            shutil.copy(tree.dir / made, part)
            part.rename(kernel)
    return kernel, f"{version} {flavour}, {len(patches)} patches, {key}"


def source(base=V6_12):
    """(version, tarball) of a kernel source, which is installed or downloaded by apt."""
    with common.locked("source"):
        return installed_source(base.package) or downloaded_source(base)


def installed_source(package):
    installed = pathlib.Path(f"/usr/src/{package}.tar.xz")
    version = common.output("dpkg-query", "-W", "-f", "${Version}", package)
    if installed.exists() and version:
        return version, installed
    return None


def downloaded_source(base):
    """The source from apt of this machine, or from suites that only the lab looks at."""
    package = base.package
    version, tarball = (common.cache("source", f"{package}.{part}") for part in ("version", "tar.xz"))
    if not version.exists():
        if not common.have("apt-get"):
            raise common.Unavailable(f"no {package}, and no apt-get to get it with")
        common.say(f"downloading {package}")
        home = common.cache("source", f"{package}.part", "deb").parent
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        if base.suites:
            stock.Archive("debian", base.suites).apt("download", "-qq", package, cwd=home)
        else:
            try:
                common.run("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=", package, cwd=home)
            except common.Broken as e:
                raise common.Unavailable(f"apt cannot get {package}: {str(e).strip().splitlines()[-1]}") from e
        deb = next(home.glob("*.deb"))
        common.run("dpkg-deb", "-x", deb, home / "unpacked")
        (home / f"unpacked/usr/src/{package}.tar.xz").rename(tarball)
        version.write_text(common.output("dpkg-deb", "-f", deb, "Version").strip())
        shutil.rmtree(home)
    return version.read_text(), tarball


def pristine(version, tarball):
    """The directory of the source, which is unpacked once."""
    home = common.cache("linux", version, "source")
    with common.locked("source"):
        if not home.exists():
            part = home.with_name("source.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            common.run("tar", "-xf", tarball, "-C", part, "--strip-components=1")
            part.rename(home)
    return home


def touched(patches):
    """The files that patches change, make or remove."""
    found = set()
    for p in patches:
        found.update(re.findall(r"^(?:---|\+\+\+) [ab]/(\S+)", p.read_text(errors="replace"), re.M))
    return found


def patched(source, patches, to):
    """Makes a directory of the files that patches touch, as they are after them."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name in touched(patches):
        if (source / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, to / name)
    for p in patches:
        common.run("patch", "-p1", "-F0", "-s", "--no-backup-if-mismatch", "-d", to, "-i", p)


class Tree:
    """A build tree of a flavour. It is brought to a state of the series with as few changes as possible."""

    def __init__(self, flavour, version, tarball, arch="x86"):
        self.arch = arch
        self.source = pristine(version, tarball)
        self.dir = self.source.with_name(flavour)
        self.log = common.LOGS / f"build-{flavour}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        self.applied = self.dir / ".taskdiag-series"
        if not self.applied.exists():
            shutil.rmtree(self.dir, ignore_errors=True)
            seed = self.source.with_name(SEEDED_FROM)
            if flavour.startswith("alt-") and (seed / "arch/x86/boot/bzImage").exists():
                part = self.dir.with_name(f"{flavour}.part")
                shutil.rmtree(part, ignore_errors=True)
                with common.locked(f"linux-{SEEDED_FROM}"):
                    common.run("cp", "-a", seed, part)
                part.rename(self.dir)
            else:
                common.run("cp", "-al", self.source, self.dir)
                self.applied.write_text("")

    def apply(self, patches):
        """Makes the tree equal to the source with these patches. A patch that fits only with fuzz
        has failed."""
        scratch = self.dir.with_name(f"{self.dir.name}.patching")
        new = touched(patches)
        patched(self.source, patches, scratch)
        old = set(self.applied.read_text().split())
        # The change is recorded before it is made, so that an interrupted change is made again.
        self.applied.write_text("\n".join(sorted(old | new)))
        for name in sorted(old | new):
            want, have = (scratch if name in new else self.source) / name, self.dir / name
            data = want.read_bytes() if want.exists() else None
            if data == (have.read_bytes() if have.exists() else None):
                continue
            have.unlink(missing_ok=True)
            if data is not None:
                have.parent.mkdir(parents=True, exist_ok=True)
                # The file gets a new time, so that make sees the change.
                have.write_bytes(data)
                have.chmod(want.stat().st_mode & 0o777)
        self.applied.write_text("\n".join(sorted(new)))
        shutil.rmtree(scratch)

    def configure(self, fragments, more=""):
        """Writes tinyconfig with the fragments. It is an error if Kconfig refuses an option of a fragment."""
        asked = "".join(f.read_text() for f in fragments) + more
        config = self.dir / ".config"
        before = config.read_text() if config.exists() else ""
        self.make(["tinyconfig"])
        with open(config, "a") as f:
            f.write(asked)
        self.make(["olddefconfig"])
        got = config.read_text()
        for name, value in re.findall(r"^(CONFIG_\w+)=(.*)$", asked, re.M):
            # The last line about an option counts. `n` is written as a comment.
            value = re.findall(rf"^{name}=(.*)$", asked, re.M)[-1]
            if (value == "n") == (f"\n{name}=" in got) or value != "n" and f"\n{name}={value}\n" not in got:
                raise common.Broken(f"{name}={value} is asked for, and not in the .config of {self.dir.name}")
        if got == before:
            # The file is left as it was, because a new time would make everything be built again.
            config.write_text(before)

    def make(self, targets, **variables):
        """Runs make, with ccache if it is there."""
        cc = "ccache gcc" if common.have("ccache") else "gcc"
        jobs = os.environ.get("TASKDIAG_JOBS") or os.cpu_count() or 1
        settings = {"ARCH": self.arch, "CC": cc, "KBUILD_BUILD_USER": "taskdiag", "KBUILD_BUILD_HOST": "lab", **variables}
        # All builds have the same time, because ccache would not hit otherwise.
        settings["KBUILD_BUILD_TIMESTAMP"] = "2026-01-01"
        common.run("make", "-C", self.dir, "-s", f"-j{jobs}", *(f"{k}={v}" for k, v in settings.items()), *targets, log=self.log)
