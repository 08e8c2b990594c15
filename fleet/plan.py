# SPDX-License-Identifier: MIT OR Apache-2.0
"""The plan of the made-up fleet: which processes are on a host, when they begin and end, and which have faults.

It knows the answers to the questions in queries/ without the files, which the test compares with what the engines say.
"""

import calendar
import dataclasses
import random

# Seconds between two frames, frames in an hour, and frames from one full frame to the next (ten
# minutes).
EVERY, FRAMES, FULL = 10, 360, 60
MIDNIGHT = calendar.timegm((2026, 11, 22, 0, 0, 0))
DATE = "2026-11-22"
FOREVER = 1 << 40
KINDS = 85  # processes in seed.csv.gz, whose behaviour is numbered from the busiest
MIB = 1 << 20

# Each of these faults is on a tenth of the hosts: memory and open files that only grow, processes
# stuck in D, a service that restarts repeatedly, an old program, and an unknown program. The last
# entry is no fault: a process that grows but is restarted in time.
FAULTS = ["leak_memory", "leak_files", "stuck", "restarts", "old", "intruder", "grows_and_restarts"]
# Faults in the lists of lists.py: a replaced library that is still mapped, and a process that
# listens on a port. The others look like these but are no faults: another library, a service that
# is restarted in time, and a process that listens before or after the moment.
FAULTS += ["old_library", "other_library", "replaced_in_time", "listener", "listened_before", "listens_later"]
PROGRAM, VERSION, OLD = "/opt/gateway", "2.4.0", "2.3.1"
INTRUDER = "/var/tmp/.x/kworkerd"
JOBS = ["sh", "find", "python3", "rsync", "logrotate"]
# The library and the port that are asked about.
LIBRARY, PORT = "libssl.so", 4444


def begin(hours):
    """The first second. Half of the hours are before midnight, so that there is a yesterday."""
    return MIDNIGHT - hours // 2 * 3600


def question(hosts, hours):
    """The values for :NAME in the queries. The moment is just before ten past three, or in the last hour if there are fewer."""
    hour = min(3, hours - hours // 2 - 1)
    return {"host": name(min(3, hosts - 1)), "date": DATE, "hour": hour, "at": MIDNIGHT + hour * 3600 + 595,
            "begin": begin(hours), "program": PROGRAM, "version": VERSION, "library": LIBRARY, "port": PORT}


def name(number):
    return f"node-{number:03}"


@dataclasses.dataclass
class Process:
    pid: int
    ticks: int  # start_ticks
    ppid: int
    first: int  # its first frame, counted from the start of the files; -1: it existed before
    last: int  # the first frame without it
    user: str
    slice: str
    unit: str | None
    container: str | None
    comm: str
    exe: str | None
    rss: int
    vsz: int
    fds: int
    behaviour: int
    phase: int
    nlwp: int = 1
    ni: int = 0
    oom: int = 0
    rss_leak: int = 0  # pages in a frame
    fds_leak: int = 0  # files in ten minutes


class Host:
    """A host with its processes in the order in which they were made."""

    def __init__(self, number, seed, hosts, hours, begin):
        self.name, self.frames, self.begin = name(number), hours * FRAMES, begin
        self.random = random.Random(f"{seed} {number}")
        self.faults = {
            fault for fault in FAULTS
            if number in random.Random(f"{seed} {fault}").sample(range(hosts), max(1, hosts // 10))
        }
        self.boot = begin - self.random.randrange(5, 90) * 86400
        self.offset_us = self.random.randrange(1_000, 40_000)
        self.pid = 0
        self.processes, self.stuck, self.planned_stuck, self.restarts, self.leaks = [], [], [], [], {}

    def add(self, comm, exe, unit, parent=1, first=-1, last=FOREVER, user="root", slice="system.slice", container=None,
            mib=16, **more):
        r = self.random
        self.pid += r.randrange(1, 9)
        if first < 0:
            ticks = 100 + self.pid * 7
        else:
            # The process has begun since the previous frame.
            ticks = (self.begin + first * EVERY - self.boot) * 100 - r.randrange(1, 900)
        rss = 0 if exe is None else int(mib * r.uniform(0.7, 1.4) * 256) * 4096
        process = Process(self.pid, ticks, parent, first, last, user, slice, unit, container, comm, exe, rss,
                          rss * 3, r.randrange(4, 90), r.randrange(KINDS), r.randrange(1000), **more)
        self.processes.append(process)
        return process

    def service(self, unit, exe, workers=0, first=-1, **more):
        """The main process of a unit and its workers."""
        comm = exe.rsplit("/", 1)[1][:15]
        main = self.add(comm, exe, unit, first=first, **more)
        if first >= 0:
            self.restarts.append(unit)
        return [main, *(self.add(comm, exe, unit, main.pid, first=first, **more) for _ in range(workers))]

    def again(self, group, frame, unit, exe, **more):
        """Ends a service, and starts it in the frame after."""
        for process in group:
            process.last = frame
        return self.service(unit, exe, len(group) - 1, frame + 1, **more)


def host(number, seed, hosts, hours, begin):
    h = Host(number, seed, hosts, hours, begin)
    r = h.random
    h.add("systemd", "/usr/lib/systemd/systemd", "init.scope", parent=0, slice="-.slice")
    h.processes[0].pid = h.pid = 1
    for k in range(40):
        h.add(f"kworker/{k % 8}:{k // 8}", None, None, parent=2, slice="-.slice", ni=-20 if k % 5 == 0 else 0)
    h.pid = 400
    for unit, exe, user in [
        ("systemd-journald.service", "/usr/lib/systemd/systemd-journald", "root"),
        ("dbus.service", "/usr/bin/dbus-daemon", "messagebus"),
        ("ssh.service", "/usr/sbin/sshd", "root"),
        ("chrony.service", "/usr/sbin/chronyd", "_chrony"),
        ("containerd.service", "/usr/bin/containerd", "root"),
        ("taskdiag-record.service", "/usr/bin/taskdiag", "root"),
    ]:
        h.service(unit, exe, user=user)
    cron = h.service("cron.service", "/usr/sbin/cron")[0]
    version = OLD if "old" in h.faults else VERSION
    h.service("gateway.service", f"{PROGRAM}/{version}/bin/gateway", 3, user="gateway", mib=120, nlwp=12)
    agent = h.service("metrics-agent.service", "/usr/bin/metrics-agent", mib=60, nlwp=8)[0]
    queue = h.service("queue-worker.service", "/usr/bin/queue-worker", 2, user="queue", mib=90)
    shipper = h.service("log-shipper.service", "/usr/bin/log-shipper", mib=40)
    workers = roles(h, number)
    if "leak_memory" in h.faults:
        leaky = r.choice(workers)
        leaky.rss_leak = r.randrange(24, 60)
        h.leaks["leaks_memory"] = [leaky.pid, leaky.ticks]
    if "leak_files" in h.faults:
        agent.fds_leak = r.randrange(10, 40)
        h.leaks["leaks_files"] = [agent.pid, agent.ticks]
    if "stuck" in h.faults:
        # Two to ten minutes each, one after the other.
        for k, process in enumerate(r.sample(workers, 3)):
            a = r.randrange(h.frames * k // 4 + 1, h.frames * (k + 1) // 4)
            b = min(a + r.randrange(12, 60), h.frames - 2)
            h.planned_stuck.append((h.processes.index(process), a, b))
    taken = {index for index, _, _ in h.planned_stuck}
    # Short waits are no fault: ten to fifty seconds.
    free = [h.processes.index(p) for p in workers if h.processes.index(p) not in taken]
    for index in r.sample(free, min(6, len(free))):
        a = r.randrange(1, h.frames - 10)
        h.stuck.append((index, a, a + r.randrange(1, 6)))
    h.stuck += h.planned_stuck
    # A process that begins later has a higher number, as on a host whose counter has not wrapped
    # around.
    h.pid = 40_000
    if "restarts" in h.faults:
        for frame in sorted(r.sample(range(20, h.frames - 20, 12), r.randrange(3, 13))):
            queue = h.again(queue, frame, "queue-worker.service", "/usr/bin/queue-worker", user="queue", mib=90)
    if "grows_and_restarts" in h.faults:
        # It grows for less than two hours, so it is no leak.
        shipper[0].rss_leak = 60
        for frame in range(500, h.frames - 20, 540):
            shipper = h.again(shipper, frame, "log-shipper.service", "/usr/bin/log-shipper", mib=40, rss_leak=60)
    if "intruder" in h.faults:
        first = r.randrange((MIDNIGHT - begin) // EVERY + 5, h.frames - 20)
        h.add("kworkerd", INTRUDER, "cron.service", cron.pid, first=first, user="www-data", mib=300, nlwp=4)
    # A process that has just ended at the moment of the question, and was in no frame with all
    # processes.
    asked = (question(hosts, hours)["at"] - begin) // EVERY
    h.add("sh", "/usr/bin/sh", "cron.service", cron.pid, first=asked - 30, last=asked - 10)
    hourly = 90 if number % 5 == 4 else 12
    for k in range(hourly * hours):
        # The first processes run each program, so that no program is new after midnight.
        job = JOBS[k] if k < len(JOBS) else r.choice(JOBS)
        first = r.randrange(1, 300) if k < len(JOBS) else r.randrange(1, h.frames - 2)
        h.add(job, f"/usr/bin/{job}", "cron.service", cron.pid, first=first, last=first + r.randrange(1, 30))
    return h


def roles(h, number):
    """The processes for the role of the host. The main ones are returned separately: something may be wrong with them."""
    r = h.random
    role = ["web", "web", "db", "cache", "batch"][number % 5]
    workers = []
    if role == "web":
        workers += h.service("nginx.service", "/usr/sbin/nginx", 8, user="www-data", mib=24)[1:]
    if role == "db":
        workers += h.service("postgresql@15-main.service", "/usr/lib/postgresql/15/bin/postgres", r.randrange(60, 160),
                             user="postgres", mib=80, oom=-900)[1:]
    if role == "cache":
        for port in range(6379, 6383):
            h.service(f"redis-server@{port}.service", "/usr/bin/redis-server", user="redis", mib=900, nlwp=5)
    if role == "batch":
        workers += h.service("batch.service", "/usr/bin/batch-runner", 24, user="batch", slice="batch.slice", mib=200,
                             ni=10)[1:]
    for _ in range({"web": 8, "db": 1, "cache": 5, "batch": 6}[role]):
        container = f"{r.getrandbits(256):064x}"
        scope = {"unit": f"docker-{container}.scope", "container": container, "user": "app"}
        shim = h.add("tini", "/sbin/tini", parent=h.processes[0].pid, mib=2, **scope)
        workers += [h.add("app-worker", "/app/bin/app-worker", parent=shim.pid, mib=150, nlwp=6, **scope)
                    for _ in range(r.randrange(6, 14))]
    return workers


def known(h, lists, hours, begin):
    """The part of the answers that a host contributes. `lists` has its sockets and mapped files."""
    asked = question(1 << 30, hours)
    at = (asked["at"] - begin) // EVERY
    ran = [[p.pid, p.ticks] for p in h.processes if p.first <= at < p.last]
    stuck = [[h.name, h.processes[i].pid, h.processes[i].ticks, begin + a * EVERY, (b - a) * EVERY]
             for i, a, b in h.planned_stuck]
    return {"name": h.name, "faults": sorted(h.faults), "leaks": h.leaks, "stuck": stuck, "restarts": h.restarts,
            "ran": sorted(ran), **lists.known()}


def fleet(made, hours, begin):
    """The answers of the whole fleet, by query: the first columns of its rows, or those that `columns` names."""
    asked = question(len(made), hours)
    restarts, memory, cpu = {}, {}, {}
    for numbers, known in made:
        for unit in known["restarts"]:
            restarts.setdefault(unit, []).append(known["name"])
        for unit, moments in numbers["memory"].items():
            for moment, amount in moments.items():
                memory.setdefault(unit, {}).setdefault(moment, 0)
                memory[unit][moment] += amount
        cpu.update(numbers["cpu"])

    def most(amounts):
        return sorted(([key, value] for key, value in amounts.items()), key=lambda row: (-row[1], row[0]))[:20]

    with_fault = {fault: [k["name"] for _, k in made if fault in k["faults"]] for fault in FAULTS}
    answers = {
        query: {"columns": ["host", "pid", "start_ticks"],
                "rows": sorted([k["name"], *k["leaks"][query]] for _, k in made if query in k["leaks"])}
        for query in ["leaks_memory", "leaks_files"]
    }
    answers |= {
        "stuck_in_d": {"columns": ["host", "pid", "start_ticks", "from_s", "seconds"],
                       "rows": sorted(row for _, k in made for row in k["stuck"])},
        "restarts_by_unit": {"columns": ["unit", "restarts", "hosts"],
                             "rows": sorted([unit, len(names), len(set(names))] for unit, names in restarts.items())},
        "old_version": {"columns": ["host", "exe"],
                        "rows": [[host, f"{PROGRAM}/{OLD}/bin/gateway"] for host in with_fault["old"]]},
        "new_programs": {"columns": ["exe", "hosts"], "rows": [[INTRUDER, len(with_fault["intruder"])]]},
        "ran_at": {"columns": ["pid", "start_ticks"],
                   "rows": next(k["ran"] for _, k in made if k["name"] == asked["host"])},
        "memory_by_unit": {"columns": ["unit", "most_bytes"],
                           "rows": most({unit: max(moments.values()) for unit, moments in memory.items()})},
        "cpu_by_container": {"columns": ["container", "container_ns"], "rows": most(cpu)},
        "listened_at": {"columns": ["host", "pid", "start_ticks", "fdnum"],
                        "rows": sorted(row for _, k in made for row in k["listened"])},
        "old_libraries": {"columns": ["host", "path", "processes_old"],
                          "rows": sorted(row for _, k in made for row in k["old"])},
    }
    return {"question": asked, "faults": with_fault, "rows": sum(n["rows"] for n, _ in made),
            "bytes": sum(n["bytes"] for n, _ in made),
            "lists": {name: {key: sum(n["lists"][name][key] for n, _ in made) for key in ("rows", "bytes")}
                      for name in made[0][0]["lists"]},
            "answers": answers}
