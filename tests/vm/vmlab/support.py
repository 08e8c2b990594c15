# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes docs/use/support.md from runs: what each engine provides on each kernel, and whether the parity suite passed there.

A run leaves its facts in the cache. The page is made from the newest facts of each kernel of the list.
"""

import datetime
import json

from . import common, kernels

PAGE = common.ROOT / "docs" / "use" / "support.md"
HEAD = """\
# Which kernels taskdiag supports

<!-- Made by `tests/vm/lab support` from runs in virtual machines. Do not edit: change tests/vm/kernels and run again. -->

The list is `tests/vm/kernels`. The run of a kernel fails if an engine does not work that is *promised* there. Each kernel was
booted under QEMU and asked `taskdiag engines --json` as root. Then it ran the parity suite: every state of mktask, every
strategy, each engine against the others, `ps`, and the `procfs` crate. Without root or without BPF, procfs answers everywhere.

"""
MARKS = """\
A test is skipped where a machine cannot make what it needs; `tests/vm/lab support --skipped` prints which, and why.

## What each engine has

An engine has all groups except those in the third column. An engine in the last column lacks some values, which `taskdiag engines` lists.

| kernel | engine | does not have | has in part |
|---|---|---|---|
"""


def remember(kernel, version, answer, results):
    """Keeps the facts that a run found out about a kernel. `answer` is that of `taskdiag engines --json`."""
    parity = results["parity"]
    failed = [f if name == "parity" else f"{name}: {f}" for name, r in results.items() for f in r.failed]
    facts = {
        "version": version,
        "date": str(datetime.date.today()),
        "commit": common.output("git", "-C", common.ROOT, "rev-parse", "--short=12", "HEAD").strip(),
        "engines": answer["engines"],
        "passed": parity.passed,
        "failed": failed,
        "skipped": [s for s in parity.skipped if not s.startswith("everything on the kernel engine")],
    }
    facts_of(kernel).write_text(json.dumps(facts, indent=1))


def forget(kernel):
    """Removes the facts of an older run, which must not stay if a run found out nothing."""
    facts_of(kernel).unlink(missing_ok=True)


def facts_of(kernel):
    return common.cache("support", f"{kernel.name}.json")


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
    text += ["\n", MARKS, *(line for name, f in ran.items() for line in engines_of(name, f)), "\n", *reasons(ran)]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("".join(text))
    common.say(f"wrote {PAGE}")


def row(kernel, facts):
    promised = ", ".join(kernel.promised)
    if facts is None:
        return f"| {kernel.name} | no current run | {promised} | | | |\n"
    works = ", ".join(e["engine"] for e in facts["engines"] if "error" not in e)
    suite = f"{facts['passed']} passed, {len(facts['skipped'])} skipped" + (f", **{len(facts['failed'])} failed**" if facts["failed"] else "")
    return f"| {kernel.name} | {facts['version']} | {promised} | {works} | {suite} | {facts['date']}, {facts['commit']} |\n"


def engines_of(name, facts):
    """The rows of a kernel in the table of engines and groups."""
    engines = [e for e in facts["engines"] if "error" not in e]
    groups = [g for g in all_groups(facts) if any(g in e["groups"] for e in engines)]
    for e in engines:
        noted = {n["group"] for n in e.get("notes", [])}
        lacking = ", ".join(g for g in groups if g not in e["groups"])
        partly = ", ".join(g for g in groups if g in noted and g in e["groups"])
        yield f"| {name} | {e['engine']} | {lacking} | {partly} |\n"


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
        facts = json.loads(facts_of(k).read_text()) if facts_of(k).exists() else {"skipped": []}
        print("\n".join(f"{k.name}: {line}" for line in facts["skipped"]))


def all_groups(facts):
    """The names of the groups in the order of their numbers, as the engines list them."""
    seen = []
    for e in facts["engines"]:
        seen += [g for g in e.get("groups", []) if g not in seen]
    return seen
