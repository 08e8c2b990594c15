# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes docs/use/support.md from runs: what each engine provides on each kernel, and whether the parity suite passed there.

A run leaves its facts in `tests/vm/runs`, a file for each kernel of the list: what each engine has, and which tests were skipped and why.
The page is made from these files.
"""

import datetime
import json
import sys

from . import common, kernels

sys.path.append(str(common.ROOT / "bench"))
from short_json import short_json  # noqa: E402

RUNS = common.VM / "runs"
PAGE = common.ROOT / "docs" / "use" / "support.md"
HEAD = """\
# Which kernels taskdiag supports

<!-- Made by `tests/vm/lab support` from runs in virtual machines. Do not edit: change tests/vm/kernels and run again. -->

The list is `tests/vm/kernels`. The run of a kernel fails if an engine does not work that is *promised* there. Each kernel was
booted under QEMU and asked `taskdiag engines --json` as root. Then it ran the parity suite: every state of mktask, every
strategy, each engine against the others, `ps`, and the `procfs` crate. The short suite compares all groups of
all tasks between the engines, beside tasks that have values of each group. Without root or without BPF, procfs answers everywhere.

"""
MARKS = """\
A test is skipped where a machine cannot make what it needs; `tests/vm/runs` and `tests/vm/lab support --skipped` have which, and why.

## What each engine has

An engine has all groups except those in the second column. It lacks some values of those in the third, which `taskdiag engines` lists.

| engine | does not have | has in part | kernels |
|---|---|---|---|
"""


def remember(kernel, version, answer, results):
    """Keeps the facts that a run found out about a kernel. `answer` is that of `taskdiag engines --json`."""
    parity = results["parity"]
    failed = [f if name == "parity" else f"{name}: {f}" for name, r in results.items() for f in r.failed]
    RUNS.mkdir(exist_ok=True)
    facts = {
        "version": version,
        "suite": kernel.suite,
        "date": str(datetime.date.today()),
        "commit": common.output("git", "-C", common.ROOT, "rev-parse", "--short=12", "HEAD").strip(),
        "engines": [facts_of_engine(e) for e in answer["engines"]],
        "passed": parity.passed,
        "failed": failed,
        "skipped": [s for s in parity.skipped if not s.startswith("everything on the kernel engine")],
    }
    facts_of(kernel).write_text(short_json(facts) + "\n")


def facts_of_engine(engine):
    """The facts about an engine that the page shows."""
    if "error" in engine:
        return {"engine": engine["engine"], "error": engine["error"]}
    in_part = [n["group"] for n in engine.get("notes", [])]
    return {"engine": engine["engine"], "groups": " ".join(engine["groups"]), "in_part": " ".join(in_part)}


def forget(kernel):
    """Removes the facts of an older run, which must not stay if a run found out nothing."""
    facts_of(kernel).unlink(missing_ok=True)


def facts_of(kernel):
    return RUNS / f"{kernel.name}.json"


def write():
    """Writes the page. Raises Unavailable if no kernel has been run yet."""
    found = {}
    for k in kernels.listed():
        facts = facts_of(k)
        found[k] = json.loads(facts.read_text()) if facts.exists() else None
    if not any(found.values()):
        raise common.Unavailable("no kernel was run yet: tests/vm/lab parity")
    text = [HEAD, "| kernel | version | promised | works | parity suite | run |\n|---|---|---|---|---|---|\n"]
    text += [row(k, f) for k, f in found.items()]
    ran = {k.name: f for k, f in found.items() if f}
    text += ["\n", MARKS, *engines_of(ran), "\n", *reasons(ran)]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("".join(text))
    common.say(f"wrote {PAGE}")


def row(kernel, facts):
    promised = ", ".join(kernel.promised)
    if facts is None:
        return f"| {kernel.name} | no current run | {promised} | | | |\n"
    works = ", ".join(e["engine"] for e in facts["engines"] if "error" not in e)
    suite = "short: " if facts["suite"] == "short" else ""
    # Of runs before 2026-11-29 only the number was kept.
    skipped = facts["skipped"] if isinstance(facts["skipped"], int) else len(facts["skipped"])
    suite += f"{facts['passed']} passed, {skipped} skipped" + (f", **{len(facts['failed'])} failed**" if facts["failed"] else "")
    return f"| {kernel.name} | {facts['version']} | {promised} | {works} | {suite} | {facts['date']}, {facts['commit']} |\n"


def engines_of(found):
    """The rows of the table of engines and groups. Kernels on which an engine is the same share a row."""
    kernels_of = {}
    for name, facts in found.items():
        engines = [e for e in facts["engines"] if "error" not in e]
        groups = [g for g in all_groups(facts) if any(g in e["groups"].split() for e in engines)]
        for e in engines:
            lacking = ", ".join(g for g in groups if g not in e["groups"].split())
            partly = ", ".join(g for g in groups if g in e["in_part"].split() and g in e["groups"].split())
            kernels_of.setdefault((e["engine"], lacking, partly), []).append(name)
    return [f"| {engine} | {lacking} | {partly} | {', '.join(names)} |\n" for (engine, lacking, partly), names in sorted(kernels_of.items())]


def reasons(found):
    """Why an engine does not work, and what has failed, with the kernels concerned."""
    kernels_of = {}
    for name, facts in found.items():
        for line in [e["error"] for e in facts["engines"] if "error" in e] + [f"failed: {f}" for f in facts["failed"]]:
            kernels_of.setdefault(line, []).append(name)
    return [f"- {line} ({', '.join(names) if len(names) < len(found) else 'all kernels'})\n" for line, names in kernels_of.items()]


def skipped():
    """Prints the tests that were skipped in the newest run of each kernel."""
    for k in kernels.listed():
        skipped = json.loads(facts_of(k).read_text())["skipped"] if facts_of(k).exists() else []
        for line in [f"{skipped} tests"] if isinstance(skipped, int) else skipped:
            print(f"{k.name}: {line}")


def all_groups(facts):
    """The names of the groups, in the order of the engine with most of them."""
    seen = []
    for e in sorted(facts["engines"], key=lambda e: -len(e.get("groups", ""))):
        seen += [g for g in e.get("groups", "").split() if g not in seen]
    return seen
