# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes or checks the sums at the ends of cover letters: which files a series changes, and by how many lines.

`git diff --stat` of the files before and after the patches has them. The source of the kernel is needed, so that a file which several
patches change counts once.
"""

import pathlib
import re
import shutil
import subprocess
import tempfile

from . import build, common

COVER = "0000-cover-letter.patch"
# `joint` is on top of all others.
JOINT = "joint"


def series():
    """Cover letter → (base, patches that come before, patches)."""
    every = build.series(build.ALL)
    found = {}
    for cover in sorted(common.SERIES.glob(f"*/{COVER}")):
        own = [p for p in every if p.parent == cover.parent]
        found[cover] = (build.V6_12, [p for p in every if p not in own] if cover.parent.name == JOINT else [], own)
    for cover in sorted(build.SENT.glob(f"*/{COVER}")):
        found[cover] = (build.V7_3, [], build.series(cover.parent.name, build.V7_3))
    return found


def sums(base, before, patches):
    """The text for a cover letter."""
    source = build.pristine(*build.source(base))
    with tempfile.TemporaryDirectory() as home:
        tree = pathlib.Path(home)

        def git(*words):
            command = ["git", "-C", tree, "-c", "user.name=lab", "-c", "user.email=lab@localhost", *words]
            return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

        def apply(some):
            for p in some:
                common.run("patch", "-p1", "-F0", "-s", "--no-backup-if-mismatch", "-d", tree, "-i", p)
            git("add", "-A")

        for name in build.touched([*before, *patches]):
            if (source / name).exists():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, tree / name)
        git("init", "-q")
        apply(before)
        git("commit", "-q", "-m", "before")
        apply(patches)
        return git("diff", "--cached", "--stat=72", "--summary")


def numbers(text):
    """What the sums say, whatever the width of the columns, for which git leaves out beginnings of paths."""
    return re.findall(r"^ (?:\S*/)?(\S+) +\| +(\d+) |^ (\d+ files? changed.*)$|^ ((?:create|delete) mode .*)$", text, re.M)


def covers(check):
    """Writes the sums, or names the cover letters where they are wrong. Returns the exit code."""
    wrong = 0
    for cover, (base, before, patches) in series().items():
        text = cover.read_text()
        begin = re.search(r"^ \S+ +\| +\d+ ", text, re.M).start()
        want = sums(base, before, patches)
        if numbers(text[begin:]) == numbers(want):
            continue
        wrong += 1
        common.say(f"{cover.relative_to(common.ROOT)}: {'has other sums than its patches' if check else 'sums are written'}")
        if not check:
            cover.write_text(text[:begin] + want)
    return int(check and wrong > 0)
