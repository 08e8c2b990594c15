# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gets kernels of distributions, by apt with a sources list of its own, from the mirror that this machine uses.

Nothing is installed. Packages are downloaded and unpacked into the cache. A mirror of Debian often has Ubuntu beside it, and
TASKDIAG_UBUNTU_MIRROR names another one. A downloaded kernel is used until `lab fetch --fresh`.
"""

import fnmatch
import lzma
import os
import re
import shutil

from . import common

# Modules that the kernels of distributions load when a program asks for sockets. Each module comes
# after the modules that it needs. Without them, sock_diag(7) has no sockets of their kinds.
MODULES = ("inet_diag", "tcp_diag", "udp_diag", "raw_diag", "mptcp_diag", "unix_diag", "netlink_diag", "af_packet", "packet_diag")


def image(name, where, pattern, fresh=False):
    """(path of vmlinuz, version, paths of modules) of the newest package that matches. `where` is the archive: (source, suites,
    architecture)."""
    home = common.cache("stock", name, "vmlinuz").parent
    vmlinuz, version, modules = home / "vmlinuz", home / "version", home / "modules"
    with common.locked(f"stock-{name}"):
        if fresh or not (vmlinuz.exists() and version.exists() and modules.exists()):
            if not common.have("apt-get"):
                raise common.Unavailable(f"{name}: no apt-get here to download it with")
            common.say(f"{name}: downloading")
            archive = Archive(*where)
            package = archive.newest(pattern)
            found = archive.vmlinuz(package, home / "unpacked")
            shutil.copyfile(found, vmlinuz)
            archive.modules(package, home / "unpacked", modules)
            shutil.rmtree(home / "unpacked")
            version.write_text(package.removeprefix("linux-image-") + "\n")
    return vmlinuz, version.read_text().strip(), sorted(modules.iterdir())


class Archive:
    """A private view of an archive: apt with its own lists, sources and state."""

    def __init__(self, source, suites, architecture="amd64"):
        self.architecture = architecture
        self.name = f"{source} {','.join(suites)}" + (f" {architecture}" if architecture != "amd64" else "")
        self.dir = common.cache("apt", common.digest(self.name), "sources.list").parent
        for sub in ("lists/partial", "cache/archives/partial", "download"):
            (self.dir / sub).mkdir(parents=True, exist_ok=True)
        (self.dir / "status").touch()
        keyring, mirror = debian_keyring(), debian_mirror()
        if source == "ubuntu":
            keyring, mirror = ubuntu_keyring(), ubuntu_mirror(mirror)
        lines = [f"deb [arch={architecture} signed-by={keyring}] {mirror} {s} main\n" for s in suites]
        (self.dir / "sources.list").write_text("".join(lines))
        self.apt("update", "-qq")

    def options(self):
        d = self.dir
        settings = {
            "Dir::Etc::SourceList": d / "sources.list",
            "Dir::Etc::SourceParts": "-",
            "Dir::State::Lists": d / "lists",
            "Dir::Cache": d / "cache",
            "Dir::State::status": d / "status",
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::http::Timeout": 30,
            "Acquire::Retries": 1,
        }
        return [o for k, v in settings.items() for o in ("-o", f"{k}={v}")]

    def apt(self, *args, **options):
        try:
            return common.run("apt-get", *self.options(), *args, **options)
        except common.Broken as e:
            last = str(e).strip().splitlines()[-1]
            raise common.Unavailable(f"apt cannot get {self.name}: {last}") from e

    def newest(self, pattern):
        """The package with the highest version in its name that matches a shell pattern."""
        names = common.output("apt-cache", *self.options(), "pkgnames", "linux-image-").split()
        found = [n for n in names if fnmatch.fnmatch(n, pattern) and re.match(r"linux-image-\d+\.\d+\.\d", n)]
        if not found:
            raise common.Unavailable(f"{self.name} has no package {pattern}")
        return max(found, key=numbers)

    def vmlinuz(self, package, to):
        """The kernel of a linux-image package, unpacked into a directory."""
        # Since Linux 7.2 in Debian, it is in a package of its own, which linux-image needs.
        for name in (package, package.replace("linux-image-", "linux-binary-")):
            found = sorted(p for p in self.unpack(name, to).rglob("vmlinuz*") if p.is_file())
            if found:
                return found[0]
        raise common.Broken(f"{package} has no vmlinuz")

    def modules(self, package, unpacked, to):
        """Writes those of MODULES that the kernel has as modules to a directory, with names in their order."""
        files = {}
        parts = [package.replace("linux-image-", part) for part in ("linux-image-", "linux-modules-", "linux-modules-extra-")]
        for name in parts:
            if not set(MODULES) <= set(files) and (name == package or self.has(name)):
                tree = unpacked if name == package else self.unpack(name, unpacked / name)
                files |= {f.name.split(".ko")[0]: f for f in tree.rglob("*.ko*")}
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir()
        for at, name in enumerate(MODULES):
            if (found := files.get(name)) is None:
                continue
            module = to / f"{at}-{name}.ko"
            if found.suffix == ".zst":
                common.run("zstd", "-dq", found, "-o", module)
            else:
                data = found.read_bytes()
                module.write_bytes(lzma.decompress(data) if found.suffix == ".xz" else data)

    def has(self, package):
        return package in common.output("apt-cache", *self.options(), "pkgnames", package).split()

    def download(self, packages):
        """Downloads packages and all that they need, and returns the files."""
        self.apt("clean")
        self.apt("install", "-qq", "--yes", "--download-only", "--no-install-recommends", *packages)
        return sorted((self.dir / "cache/archives").glob("*.deb"))

    def unpack(self, package, to):
        """Downloads a package and unpacks it into a directory."""
        shutil.rmtree(to, ignore_errors=True)
        for old in (self.dir / "download").glob("*.deb"):
            old.unlink()
        self.apt("download", "-qq", package, cwd=self.dir / "download")
        deb = next((self.dir / "download").glob("*.deb"))
        common.run("dpkg-deb", "-x", deb, to)
        deb.unlink()
        return to


def numbers(name):
    """A key that sorts `linux-image-6.12.90+deb13.1-…` by its numbers."""
    return [int(n) for n in re.findall(r"\d+", name)]


def debian_mirror():
    """The Debian mirror that apt of this machine uses."""
    form = "$(ORIGIN) $(LABEL) $(REPO_URI)"
    for line in common.output("apt-get", "indextargets", "--format", form, "Created-By: Packages").splitlines():
        origin, label, uri = line.split(" ", 2)
        if (origin, label) == ("Debian", "Debian"):
            return uri.rstrip("/")
    raise common.Unavailable("apt of this machine has no Debian mirror (run apt-get update?)")


def debian_keyring():
    path = "/usr/share/keyrings/debian-archive-keyring.gpg"
    if not os.path.exists(path):
        raise common.Unavailable(f"no {path}: install debian-archive-keyring")
    return path


def ubuntu_mirror(debian):
    own = os.environ.get("TASKDIAG_UBUNTU_MIRROR")
    if own:
        return own.rstrip("/")
    if not debian.endswith("/debian"):
        raise common.Unavailable("no Ubuntu mirror can be guessed: set TASKDIAG_UBUNTU_MIRROR")
    return debian.removesuffix("debian") + "ubuntu"


def ubuntu_keyring():
    """The keys of Ubuntu, from Debian's package of them."""
    home = common.cache("stock", "ubuntu-keyring")
    found = home / "usr/share/keyrings/ubuntu-archive-keyring.gpg"
    if not found.exists():
        Archive("debian", ["trixie"]).unpack("ubuntu-keyring", home)
    return found
