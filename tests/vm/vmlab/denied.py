# SPDX-License-Identifier: MIT OR Apache-2.0
"""Boots kernels that deny BPF to root, or might, and asks each program there.

Where BPF is denied, the programs read /proc, `taskdiag engines` says why, and `--engine bpf` fails with the same reason. The verifier is
never named, because it has looked at nothing. Where a setting denies nothing to root, BPF answers. `tests/tests/rights.rs` and
`bad_input.rs` have the denials that need no machine of their own: seccomp, capabilities, /etc/taskdiag.conf.
"""

import dataclasses
import re

from . import bench, common, suites

KERNELS = ("debian-6.1", "debian-newest")
# What the service answers where it cannot use BPF. Its journal has the reason.
SERVICE = "it cannot use BPF here"
SECURITY_MODULE = "security module"


@dataclasses.dataclass(frozen=True)
class Scene:
    """A way to deny BPF."""

    name: str
    before: str = ":"
    """Shell that makes it."""
    through: str = ""
    """A command that runs the programs."""
    reason: str = ""
    """What the messages have. Empty: BPF answers."""


SETTINGS = [
    *(Scene(f"unprivileged_bpf_disabled={n}", f"echo {n} >/proc/sys/kernel/unprivileged_bpf_disabled") for n in (0, 2, 1)),
    *(Scene(f"perf_event_paranoid={n}", f"echo {n} >/proc/sys/kernel/perf_event_paranoid") for n in (-1, 2, 4)),
    Scene("kptr_restrict=2", "echo 2 >/proc/sys/kernel/kptr_restrict"),
    Scene("no capabilities", through="/bin/setpriv --bounding-set=-bpf,-perfmon,-sys_admin --inh-caps=-bpf,-perfmon,-sys_admin", reason="it needs root, or CAP_BPF"),
    Scene("a user namespace", through="/bin/unshare --user --map-root-user", reason="user namespace"),
    # EPERM, EACCES
    *(Scene(f"a BPF program refuses with error {n}", through=f"/lab/deny_bpf {n}", reason=SECURITY_MODULE) for n in (1, 13)),
]
# Parameters of the kernel at boot, and the scenes there.
BOOTS = {
    "lsm=lockdown,bpf lockdown=none": [Scene("lockdown=none"), *SETTINGS],
    "lockdown=integrity": [Scene("lockdown=integrity")],
    "lockdown=confidentiality": [
        Scene("lockdown=confidentiality", reason="lockdown=confidentiality"),
        Scene("lockdown=confidentiality, without securityfs", "umount /sys/kernel/security", reason="lockdown=confidentiality"),
    ],
}
# So many that BPF is quicker than /proc, and `auto` uses it where it may.
PROCESSES = 500
# A program as (name, arguments, exit codes, engine that it asks for).
SOCKET = "/lab/tmp/socket"
FACES = (
    ("engines", "taskdiag engines", (0,), ""),
    ("files", "taskdiag files --stats", (0, 3), ""),
    ("ps", "taskdiag ps -eT --stats", (0, 3), ""),
    ("top", "taskdiag top --once -d 0.2", (0, 3), ""),
    ("export", "taskdiag export --once", (0,), ""),
    ("ps --engine bpf", "taskdiag ps -e --engine bpf", (4,), "bpf"),
    ("top --engine bpf", "taskdiag top --once -d 0.2 --engine bpf", (4,), "bpf"),
    ("export --engine bpf", "taskdiag export --once --engine bpf", (1, 4), "bpf"),
    ("ps --engine service", f"TASKDIAG_SOCKET={SOCKET} taskdiag ps -e -o pid,comm --engine service", (4,), "service"),
)


class Denied(suites.Suite):
    """The programs in each scene of a boot."""

    name = "denied"

    def __init__(self, scenes):
        self.scenes = scenes
        self.timeout = 240 * len(scenes)

    def files(self, tree):
        for program in programs():
            tree.program(program)
        tree.program(bench.compiled(common.VM / "deny_bpf.c"), "/lab/deny_bpf")
        tree.program(bench.compiled(common.ROOT / "bench" / "load.c"), "/lab/load")

    def script(self):
        lines = [f"export PATH={programs()[0].parent}:{programs()[1].parent}:$PATH; cd /lab/tmp", "mount -t securityfs securityfs /sys/kernel/security"]
        lines += [
            "echo \"@@lsm $(cat /sys/kernel/security/lsm); symbols of signed programs: $(grep -c 'hornet\\|bpf.*signature' /proc/kallsyms)\"",
            # The load ends when its standard input does.
            f"mkfifo hold; /lab/load procs {PROCESSES} <hold >ready & exec 9>hold; while ! grep -q ready ready; do sleep 0.5; done",
        ]
        for s in self.scenes:
            lines.append(f"echo '@@scene {s.name}'; {s.before} || echo '@@failed to prepare'")
            job = [f"rm -f {SOCKET}; taskdiagd --socket {SOCKET} 2>service & service=$!; while ! [ -S {SOCKET} ]; do sleep 0.2; done"]
            for name, command, _, _ in FACES:
                job.append(f"echo '@@face {name}'; {command} >out 2>err; echo \"@@code $?\"; head -c 9000 out; echo '@@err'; head -c 1500 err; echo")
            job.append("kill $service; wait $service; echo '@@journal'; cat service")
            # The shell of the job is in the scene, too.
            lines += ["cat >scene <<'END'", *job, "END", f"{s.through} sh scene"]
        return [*lines, "exec 9>&-; wait"]

    def read(self, output, run):
        result = suites.Result()
        for line in re.findall(r"^@@(lsm .*)$", output, re.M):
            print(f"  {line}")
        scenes = dict(part.split("\n", 1) for part in output.split("@@scene ")[1:])
        for s in self.scenes:
            text, bad = scenes.get(s.name, ""), []
            if "@@failed" in text or "@@face" not in text:
                if "deny_bpf: " in text:
                    result.skipped.append(f"{s.name}: {text.strip()}")
                    continue
                bad.append(f"it was not made: {text[-500:].strip()}")
            for part in text.split("@@face ")[1:]:
                name, _, said = part.partition("\n")
                bad += wrong(s, name, said)
            if text and s.reason and s.reason not in text.partition("@@journal")[2]:
                bad.append(f"taskdiagd does not say why: {text.partition('@@journal')[2].strip()}")
            if reason := re.search(r"^taskdiag: (the bpf engine cannot be used: .*)$", text, re.M):
                print(f"  {s.name}: {reason[1]}")
            if bad:
                result.failed.append(s.name)
                result.said[s.name] = "\n".join(bad)
            else:
                result.passed += 1
        return result


def wrong(scene, face, said):
    """What is wrong with the answer of a program in a scene."""
    _, _, codes, engine = next(f for f in FACES if f[0] == face)
    code, _, text = said.partition("\n")
    code, err = int(code.removeprefix("@@code ") or -1), text.partition("@@err\n")[2].partition("@@journal")[0]
    bad = []
    if engine and not scene.reason:
        codes = (0, 3)
    if code not in codes:
        bad.append(f"it exits with {code}")
    if "verifier" in text:
        bad.append("it blames the verifier")
    if scene.reason:
        wants = {"bpf": scene.reason, "service": SERVICE}.get(engine)
        if wants and wants not in err:
            bad.append(f"its message lacks {wants!r}")
        if face == "engines" and not (scene.reason in text and "procfs   the only engine that works here" in text):
            bad.append(f"it lacks {scene.reason!r}, or that procfs answers")
        if "--stats" in face_command(face) and "engine procfs:" not in err:
            bad.append("procfs did not answer")
    elif face == "files" and "engine bpf:" not in err:
        bad.append("bpf did not answer")
    return [f"{face}: {b}: {text.strip()}" for b in bad]


def face_command(face):
    return next(f[1] for f in FACES if f[0] == face)


def programs():
    """The command and the service."""
    return suites.program(profile="quick"), suites.service(profile="quick")
