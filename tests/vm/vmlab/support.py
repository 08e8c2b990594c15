# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes docs/support.md from runs: what each engine provides on each kernel, and whether the parity suite passed there.

A run leaves its facts in the cache. The page is made from the newest facts of each kernel of the list.
"""

import datetime
import json

from . import common, kernels

PAGE = common.ROOT / "docs" / "support.md"
HEAD = """\
# Which kernels taskdiag supports

<!-- Made by `tests/vm/lab support` from runs in virtual machines. Do not edit: change tests/vm/kernels and run again. -->

The list is `tests/vm/kernels`. The run of a kernel fails if an engine does not work that is *promised* there. Each kernel was
booted under QEMU and asked `taskdiag engines --json` as root. Then it ran the parity suite: every state of mktask, every
strategy, each engine against the others, `ps`, and the `procfs` crate. Without root or without BPF, procfs answers everywhere.

"""
MARKS = """\
`yes` means that the engine has the group, and `-` that it does not have it. `partly` means that it lacks something, which `taskdiag
engines` names. An engine that is not in a table does not work on that kernel, and the reason stands below the table.
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
    text += ["\n", MARKS]
    text += [details(k, f) for k, f in found.items() if f]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("".join(text))
    common.say(f"wrote {PAGE}")


def row(kernel, facts):
    promised = ", ".join(kernel.promised)
    if facts is None:
        return f"| {kernel.name} | no current run | {promised} | | | |\n"
    works = ", ".join(e["engine"] for e in facts["engines"] if "error" not in e)
    suite = f"{facts['passed']} passed" + (f", **{len(facts['failed'])} failed**" if facts["failed"] else "")
    return f"| {kernel.name} | {facts['version']} | {promised} | {works} | {suite} | {facts['date']}, {facts['commit']} |\n"


def details(kernel, facts):
    """The table of engines and groups for a kernel, and what does not work there."""
    engines = [e for e in facts["engines"] if "error" not in e]
    groups = [g for g in all_groups(facts) if any(g in e["groups"] for e in engines)]
    text = f"\n## {kernel.name}\n\n| engine | {' | '.join(groups)} |\n|---{'|---' * len(groups)}|\n"
    for e in engines:
        partly = {n["group"] for n in e.get("notes", [])}
        marks = ["-" if g not in e["groups"] else "partly" if g in partly else "yes" for g in groups]
        text += f"| {e['engine']} | " + " | ".join(marks) + " |\n"
    lines = [e["error"] for e in facts["engines"] if "error" in e]
    lines += [f"failed: {f}" for f in facts["failed"]]
    lines += [f"skipped: {s}" for s in facts["skipped"]]
    if lines:
        text += "\n" + "".join(f"- {line}\n" for line in lines)
    return text


def all_groups(facts):
    """The names of the groups in the order of their numbers, as the engines list them."""
    seen = []
    for e in facts["engines"]:
        seen += [g for g in e.get("groups", []) if g not in seen]
    return seen
