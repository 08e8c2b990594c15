#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests the scripts of packaging/ and `make install` with files that take the place of programs, in some seconds.

`make deb-test`, `release-test` and `source-test` try them with real programs, which takes long.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest

from selftest import ROOT, TARGET, Results

# A stand-in for the command, for the calls that `make install` makes.
FAKE = """#!/bin/sh
case $1 in generate) printf 'ps\\nconvert\\n' ;; *) echo "made by $*" ;; esac
"""
# The files that `make install` takes from the tree.
SOURCES = ("Makefile", "contrib", "tools", "Cargo.toml", "crates/taskdiag-c")
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
NOBODY = 65534


def run(*command, **options):
    """The finished process, with what it printed."""
    return subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, **options
    )


class Case(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.work = pathlib.Path(directory.name)
        self.work.chmod(0o755)

    def copy(self, *names):
        """A copy of parts of the tree."""
        copy = self.work / "tree"
        copy.mkdir()
        for name in names:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("target", "__pycache__"))
            else:
                shutil.copy2(ROOT / name, copy / name)
        return copy

    def holds(self, said):
        """A process succeeded."""
        self.assertEqual(said.returncode, 0, said.stdout)
        return said.stdout


class Install(Case):
    """make install, as root and as another user."""

    def install(self, user, target="install", **settings):
        copy = self.work / "tree"
        if not copy.exists():
            self.copy(*SOURCES)
            for name in ("taskdiag", "taskdiagd", "lib.so", "lib.so.0"):
                (copy / name).write_text(FAKE)
                (copy / name).chmod(0o755)
        programs = {"BIN": copy / "taskdiag", "DAEMON": copy / "taskdiagd", "DROPIN": copy / "lib.so", "CLIB": copy / "lib.so.0"}
        given = [f"{k}={v}" for k, v in {**programs, **settings}.items()]
        as_user = [] if user == os.getuid() else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        return run(*as_user, "make", "--no-print-directory", target, *given, cwd=copy)

    @staticmethod
    def files(directory):
        return {str(p.relative_to(directory)) for p in directory.rglob("*") if not p.is_dir()}

    def test_an_ordinary_user_installs_all_but_units_and_removes_all(self):
        user = NOBODY if os.getuid() == 0 else os.getuid()
        home = self.work / "home"
        home.mkdir()
        if os.getuid() == 0:
            os.chown(home, user, user)
        prefix = home / ".local"
        self.holds(self.install(user, PREFIX=prefix))
        found = self.files(prefix)
        for name in (
            "bin/taskdiag",
            "bin/taskdiagd",
            "lib/taskdiag/libtaskdiag-procps.so",
            "lib/libtaskdiag.so.0",
            "lib/libtaskdiag.so",
            "lib/pkgconfig/taskdiag.pc",
            "include/taskdiag.h",
            "share/man/man3/libtaskdiag.3",
            "share/man/man1/taskdiag.1",
            "share/man/man1/taskdiag-convert.1",
            "share/man/man8/taskdiagd.8",
            "share/bash-completion/completions/taskdiag",
            "share/zsh/site-functions/_taskdiag",
            "share/fish/vendor_completions.d/taskdiag.fish",
            "share/doc/taskdiag/examples/grafana/taskdiag.json",
            "share/doc/taskdiag/examples/prometheus/taskdiag.rules.yml",
            "share/doc/taskdiag/examples/taskdiag-convert.timer",
            "share/doc/taskdiag/examples/ps.c",
        ):
            self.assertIn(name, found)
        self.assertEqual([f for f in found if f.endswith(".service") and "examples" not in f], [])
        unit = (prefix / "share/doc/taskdiag/examples/taskdiag-convert.service").read_text()
        self.assertIn(f"{prefix}/bin/taskdiag", unit)
        self.assertNotIn("@PREFIX@", unit)
        self.assertEqual(os.readlink(prefix / "lib/libtaskdiag.so"), "libtaskdiag.so.0")
        self.assertEqual(
            (prefix / "lib/pkgconfig/taskdiag.pc").read_text().splitlines(),
            [
                f"libdir={prefix}/lib",
                f"includedir={prefix}/include",
                "",
                "Name: taskdiag",
                "Description: Processes, threads, mappings and open files of Linux, as tables",
                f"Version: {VERSION}",
                "Libs: -L${libdir} -ltaskdiag",
                "Cflags: -I${includedir}",
            ],
        )
        self.holds(self.install(user, "uninstall", PREFIX=prefix))
        self.assertEqual(self.files(prefix), set())

    def test_a_package_has_units_and_no_library_where_none_is_built(self):
        root = self.work / "root"
        self.holds(self.install(os.getuid(), DESTDIR=root, PREFIX="/usr", UNIT_DIR="/usr/lib/systemd/system", DROPIN="", CLIB=""))
        found = self.files(root)
        self.assertIn("usr/lib/systemd/system/taskdiagd.socket", found)
        self.assertIn("/usr/bin/taskdiagd", (root / "usr/lib/systemd/system/taskdiagd.service").read_text())
        self.assertEqual([f for f in found if re.search(r"\.(so|h|pc|3)$|\.so\.", f)], [])


class Address(Case):
    """packaging/address."""

    FILES = ("Cargo.toml", "python/pyproject.toml", "packaging")

    def test_the_address_changes_in_all_files_or_in_none(self):
        copy = self.copy(*self.FILES)
        new = ("https://example.org/taskdiag", "https://git.example.org/taskdiag.git", "Ann Other <ann@example.org>")
        self.holds(run(copy / "packaging/address", *new))
        self.assertEqual(self.holds(run(copy / "packaging/address")).splitlines(), list(new))
        left = run("grep", "-rnE", r"(//taskdiag|@taskdiag)\.invalid", copy)
        self.assertEqual(left.stdout, "")
        # Back again, nothing has changed.
        old = self.holds(run(ROOT / "packaging/address")).splitlines()
        self.holds(run(copy / "packaging/address", *old))
        self.holds(run("diff", "-r", ROOT / "packaging", copy / "packaging"))

    def test_an_invalid_address_is_refused(self):
        copy = self.copy(*self.FILES)
        for bad in (
            ("http://example.org", "https://example.org/x", "A <a@example.org>"),
            ("https://example.org/", 'https://example.org/"x', "A <a@example.org>"),
            ("https://example.org/", "https://example.org/x", "A"),
        ):
            said = run(copy / "packaging/address", *bad)
            self.assertNotEqual(said.returncode, 0, bad)
            self.assertNotIn("Traceback", said.stdout)
        self.holds(run("diff", "-r", ROOT / "packaging", copy / "packaging"))


class Image(Case):
    """packaging/image."""

    def make(self, name):
        for arch in ("amd64", "arm64"):
            directory = self.work / arch
            (directory / "licences").mkdir(parents=True, exist_ok=True)
            (directory / "licences/LICENSE").write_text("a text\n")
            for program in ("taskdiag", "taskdiagd"):
                (directory / program).write_text(f"{program} of {arch}\n")
        out = self.work / name
        machines = [f"{a}:{self.work / a}" for a in ("amd64", "arm64")]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        self.holds(run(ROOT / "packaging/image", out, "1.2.3", *machines, env=environment))
        return out

    def test_two_images_of_the_same_programs_have_the_same_bytes(self):
        self.assertEqual(self.make("a.tar").read_bytes(), self.make("b.tar").read_bytes())

    def test_each_digest_is_that_of_its_blob_and_each_machine_has_its_programs(self):
        with tarfile.open(self.make("a.tar")) as archive:
            files = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}
        for name, data in files.items():
            if name.startswith("blobs/"):
                self.assertEqual(name, "blobs/sha256/" + hashlib.sha256(data).hexdigest())

        def blob(descriptor):
            data = files["blobs/" + descriptor["digest"].replace(":", "/")]
            self.assertEqual(len(data), descriptor["size"])
            return data

        index = json.loads(blob(json.loads(files["index.json"])["manifests"][0]))
        self.assertEqual([m["platform"]["architecture"] for m in index["manifests"]], ["amd64", "arm64"])
        for found in index["manifests"]:
            manifest = json.loads(blob(found))
            arch = json.loads(blob(manifest["config"]))["architecture"]
            packed = self.work / "layer.tar.gz"
            packed.write_bytes(blob(manifest["layers"][0]))
            with tarfile.open(packed) as layer:
                self.assertEqual(layer.extractfile("usr/bin/taskdiag").read().decode(), f"taskdiag of {arch}\n")
                self.assertEqual({(m.uid, m.gid, m.mtime) for m in layer}, {(0, 0, 1700000000)})


@unittest.skipUnless(shutil.which("ssh-keygen"), "there is no ssh-keygen")
class Sign(Case):
    """packaging/sign, with a key of OpenSSH that is made for the test."""

    def setUp(self):
        super().setUp()
        self.dist = self.work / "dist"
        self.dist.mkdir()
        (self.dist / "a").write_text("content\n")
        digest = hashlib.sha256(b"content\n").hexdigest()
        (self.dist / "SHA256SUMS").write_text(f"{digest}  a\n")
        self.key = self.work / "key"
        self.holds(run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key))

    def test_a_signature_is_made_and_holds(self):
        self.holds(run(ROOT / "packaging/sign", self.key, self.dist))
        self.assertTrue((self.dist / "SHA256SUMS.sig").stat().st_size)

    def test_files_that_do_not_fit_their_checksums_are_not_signed(self):
        (self.dist / "a").write_text("other content\n")
        said = run(ROOT / "packaging/sign", self.key, self.dist)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("nothing is signed", said.stdout)
        self.assertFalse((self.dist / "SHA256SUMS.sig").exists())

    def test_a_missing_key_is_named(self):
        said = run(ROOT / "packaging/sign", self.work / "nokey", self.dist)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("nokey", said.stdout)


class Lists(Case):
    """The quick checks of packaging/."""

    def test_packaging_fits_the_tree(self):
        self.holds(run(ROOT / "packaging/check"))

    def test_another_version_in_a_recipe_is_found(self):
        copy = self.copy(
            "Cargo.toml", "python", "packaging", "crates", "contrib", "docs", "Makefile", "README.md", "CHANGELOG.md", ".github"
        )
        self.assertIn(" 0 problems", self.holds(run(copy / "packaging/check")))
        for name, old, new in (
            ("packaging/rpm/taskdiag.spec", "Version:        ", "Version:        9"),
            ("packaging/arch/PKGBUILD", "pkgver=", "pkgver=9"),
            ("packaging/alpine/APKBUILD", 'url="', 'url="https://other.example/'),
            ("packaging/debian/control", "Homepage: ", "Homepage: https://other.example/"),
            (".github/workflows/check.yml", "make test", "make tests"),
            ("packaging/rpm/taskdiag.spec", "/usr/bin/taskdiagd", "/usr/bin/taskdiage"),
            ("packaging/debian/libtaskdiag0.symbols", " taskdiag_ask@", " taskdiag_asks@"),
            ("contrib/man/libtaskdiag.3", "taskdiag_u64(", "taskdiag_u63("),
        ):
            whole = (copy / name).read_text()
            (copy / name).write_text(whole.replace(old, new))
            said = run(copy / "packaging/check")
            (copy / name).write_text(whole)
            self.assertNotEqual(said.returncode, 0, name)
            self.assertIn(name.split("/")[1], said.stdout)

    def test_each_forge_gets_jobs_that_call_targets_of_the_makefile(self):
        copy = self.copy("packaging/forge", "Makefile")
        for forge in ("github", "forgejo", "gitlab", "sourcehut"):
            made = self.holds(run(copy / "packaging/forge", forge)).split()
            text = "".join((copy / m).read_text() for m in made)
            for target in ("check", "test", "release"):
                self.assertRegex(text, rf"make (\w+ )*{target}\b", forge)
        self.assertNotEqual(run(copy / "packaging/forge", "nosuchforge").returncode, 0)


def main():
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(c) for c in (Install, Address, Image, Sign, Lists)
    )
    TARGET.mkdir(parents=True, exist_ok=True)
    quiet = open(os.devnull, "w")
    result = unittest.TextTestRunner(stream=quiet, resultclass=Results).run(suite)
    with open(TARGET / "taskdiag-skips.txt", "a") as skips:
        skips.writelines(f"tests of packaging/: {why}\n" for _, why in result.skipped)
    bad = len(result.failures) + len(result.errors)
    good = result.testsRun - bad - len(result.skipped)
    print(f"test result: {'FAILED' if bad else 'ok'}. {good} passed; {bad} failed; 0 ignored; tests of packaging/\n")
    return 1 if bad or not good else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
