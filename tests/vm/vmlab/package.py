# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes a Debian package of the kernel with the series (`make kernel-deb`), with the config that users run.

The config is that of Debian's own package of Linux 6.12 (`amd64` or `cloud-amd64`), or any file. Two things are changed: the keys of
Debian's builders are left out, and the options of the series are turned on. `trim` leaves out all modules and debug information,
which a trial does not need.
"""

import pathlib
import re
import shutil

from . import build, common, stock

NEEDED = (*build.NEEDED, "dpkg-buildpackage", "dh", "rsync", "kmod", "cpio")
TRIMMED = """\
CONFIG_DEBUG_INFO_NONE=y
CONFIG_DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT=n
CONFIG_DEBUG_INFO_BTF=n
"""


def distribution_config(flavour):
    """The config of Debian's newest package of Linux 6.12 in a flavour, as a file in the cache."""
    home = common.cache("stock", f"config-{flavour}", "config").parent
    if not (home / "config").exists():
        archive = stock.Archive("debian", ["trixie"])
        name = archive.newest(f"linux-image-6.12.*[0-9]-{flavour}")
        common.say(f"the config is that of {name}")
        unpacked = archive.unpack(name, home / "unpacked")
        found = [*unpacked.glob("boot/config-*"), *unpacked.rglob("usr/lib/modules/*/config")]
        if not found:
            raise common.Broken(f"{name} has no config")
        shutil.copyfile(found[0], home / "config")
        shutil.rmtree(home / "unpacked")
    return home / "config"


def own_options():
    """The options that the series adds, without its tests."""
    lines = build.options(build.series()).splitlines(keepends=True)
    return "".join(line for line in lines if "KUNIT" not in line and "TEST" not in line)


def make(config, trim):
    """Builds the packages. Returns the exit code."""
    lacking = [p for p in NEEDED if not common.have(p)]
    if lacking:
        raise common.Unavailable(f"no {', '.join(lacking)} (tools/setup kernel-deb)")
    version, tarball = build.source()
    given = pathlib.Path(config)
    base = given if given.is_file() else distribution_config(config)
    with common.locked("linux-deb"):
        tree = build.Tree("deb", version, tarball)
        tree.apply(build.series())
        changes = 'CONFIG_SYSTEM_TRUSTED_KEYS=""\nCONFIG_SYSTEM_REVOCATION_KEYS=""\nCONFIG_LOCALVERSION="-taskdiag"\n'
        changes += own_options() + (TRIMMED if trim else "")
        text = base.read_text()
        if trim:
            text = re.sub(r"^(CONFIG_\w+)=m$", r"# \1 is not set", text, flags=re.M)
        (tree.dir / ".config").write_text(text + changes)
        tree.make(["olddefconfig"])
        for old in tree.dir.parent.glob("*.deb"):
            old.unlink()
        common.say(f"building; {'about ten minutes' if trim else 'an hour or more'}, log in {tree.log}")
        # The programs that the build needs were checked above, by themselves and not by names of
        # packages.
        tree.make(["bindeb-pkg"], DPKG_FLAGS="-d", KDEB_PKGVERSION="1")
        to = common.TARGET / "kernel-deb"
        to.mkdir(parents=True, exist_ok=True)
        for deb in tree.dir.parent.glob("*.deb"):
            shutil.move(deb, to / deb.name)
            common.say(f"{to / deb.name}")
    return 0
