# SPDX-License-Identifier: MIT OR Apache-2.0
"""The open sockets and the mapped files of the made-up fleet: the plan of them, and their tables.

An entry of a process is a socket or a mapped file. It exists from one frame to another, in one or
several versions: a descriptor becomes another socket, and a mapped library counts as deleted when
it is replaced. The plan is made of versions. The answers to `listened_at` and `old_libraries` also
come from them.
"""

import dataclasses
import random

import numpy as np
import pyarrow as pa

from plan import EVERY, FOREVER, FRAMES, FULL, LIBRARY, MIDNIGHT, PORT

LIB = "/usr/lib/x86_64-linux-gnu"
NETNS = 4026531840
# Programs that map libssl and libcrypto.
TLS = {"sshd", "gateway", "metrics-agent", "log-shipper", "nginx", "postgres", "python3"}
# The ports that the main process of a unit listens on. Workers of nginx have them, too.
LISTENS = {"sshd": [22], "nginx": [80, 443], "gateway": [8443], "postgres": [5432], "metrics-agent": [9100]}

text = pa.dictionary(pa.int32(), pa.string())
u64 = pa.uint64()
HEAD = [
    pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("change", pa.dictionary(pa.int8(), pa.string()), nullable=False),
    ("pid", u64),
    ("start_ticks", u64),
]
OF_TASK = [(name, text) for name in ["comm", "user", "unit", "container"]]
# The schemas of `taskdiag convert` without -o. The test compares them with what the command writes.
SCHEMAS = {
    "sockets": pa.schema(
        [
            *HEAD,
            ("fdnum", u64),
            *OF_TASK,
            *((name, text) for name in ["family", "protocol", "sockstate", "laddr"]),
            ("lport", u64),
            ("raddr", text),
            ("rport", u64),
            ("path", text),
            ("sock_netns", u64),
            ("inode", u64),
        ]
    ),
    "mapped_files": pa.schema(
        [*HEAD, ("device", text), ("inode", u64), ("path", text), *OF_TASK, ("deleted", pa.bool_())]
    ),
}


@dataclasses.dataclass
class Version:
    """A socket or a mapped file, from the frame `first` up to, but not including, `last`."""

    process: object
    key: tuple  # what identifies it in its process: a descriptor, or an inode and a path
    first: int
    last: int
    values: dict


class Plan:
    """The sockets and mapped files of a host."""

    def __init__(self, host, number, seed, asked):
        """`asked` has the values for :NAME in the queries."""
        self.host, self.random = host, random.Random(f"{seed} {number} lists")
        self.inodes = 100_000
        self.sockets, self.mapped = [], []
        # The first frame of the hour that is asked about, and the last frame up to the moment.
        self.hour = (MIDNIGHT + asked["hour"] * 3600 - host.begin) // EVERY
        self.at = (asked["at"] - host.begin) // EVERY
        # A library is replaced before that hour, on the same day. It stays mapped where the fault
        # is.
        midnight = (MIDNIGHT - host.begin) // EVERY
        self.replaced = self.random.randrange(midnight + 1, max(midnight + 2, self.hour - 20))
        main = {}
        for process in host.processes:
            if process.exe is not None:
                program = process.exe.rsplit("/", 1)[1]
                is_main = main.setdefault(process.unit, process) is process or process.ppid == 1
                self.libraries(process, program)
                self.listeners(process, program, is_main)
        self.faults()

    def inode(self):
        self.inodes += 1
        return self.inodes

    def map(self, process, path, inode, first=-1, last=FOREVER, deleted=False):
        first, last = max(first, process.first), min(last, process.last)
        if first < last:
            values = {"device": "08:01", "inode": inode, "path": path, "deleted": deleted}
            self.mapped.append(Version(process, (inode, path), first, last, values))

    def map_replaced(self, process, path, inode):
        """A file that is replaced. A process that began before still has the old one."""
        if process.first < self.replaced:
            self.map(process, path, inode, last=self.replaced)
            self.map(process, path, inode, first=self.replaced, deleted=True)
        else:
            self.map(process, path, inode + 1)

    def libraries(self, process, program):
        # The files of an image have inodes of their own.
        image = 5_000_000 if process.container else 0
        self.map(process, process.exe, 300 + len(process.exe) + image)
        for number, name in enumerate(["ld-linux-x86-64.so.2", "libc.so.6"]):
            self.map(process, f"{LIB}/{name}", 100 + number + image)
        if program in TLS:
            for number, name in enumerate(["libssl.so.3", "libcrypto.so.3"]):
                if "old_library" in self.host.faults and not process.container:
                    self.map_replaced(process, f"{LIB}/{name}", 200 + 10 * number)
                else:
                    self.map(process, f"{LIB}/{name}", 200 + 10 * number + image)
        if program == "chronyd" and "other_library" in self.host.faults:
            # This library is deleted, too, but is not the one that is asked about.
            self.map_replaced(process, f"{LIB}/libcap.so.2", 250)

    def open(self, process, fd, first=-1, last=FOREVER, inode=None, **values):
        first, last = max(first, process.first), min(last, process.last)
        if first < last:
            none = dict.fromkeys(["laddr", "lport", "raddr", "rport", "path"])
            values = {**none, "fdnum": fd, "sock_netns": NETNS, "inode": inode or self.inode(), **values}
            self.sockets.append(Version(process, (fd,), first, last, values))

    def listen(self, process, fd, port, first=-1, last=FOREVER, **more):
        self.open(process, fd, first, last, family="inet", protocol="TCP", sockstate="LISTEN", laddr="0.0.0.0", lport=port, **more)

    def connect(self, process, fd, first, last, lport, raddr, rport):
        self.open(process, fd, first, last, family="inet", protocol="TCP", sockstate="ESTABLISHED", laddr="10.0.0.7",
                  lport=lport, raddr=raddr, rport=rport)

    def listeners(self, process, program, is_main):
        """The usual sockets of a process."""
        r = self.random
        if program == "systemd-journald":
            self.open(process, 3, family="unix", protocol="STREAM", sockstate="LISTEN", path="/run/systemd/journal/stdout")
        elif process.first < 0 and not process.container:
            # Standard output goes to the journal.
            self.open(process, 1, family="unix", protocol="STREAM", sockstate="CONNECTED")
        ports = LISTENS.get(program, [])
        if program == "redis-server":
            ports = [int(process.unit.split("@")[1].split(".")[0])]
        if is_main or program == "nginx":
            for k, port in enumerate(ports):
                # One socket, which the workers of nginx have from their parent.
                self.listen(process, 6 + k, port, inode=9_000 + port)
        if program == "app-worker":
            # Each container has a port 8000 of its own.
            self.listen(process, 3, 8000, sock_netns=NETNS + 1 + int(process.container[:6], 16))
        if program == "nginx" and not is_main:
            # Connections, one after the other. Some clients have the port that is asked about.
            for fd in (10, 11):
                frame = r.randrange(0, 60)
                while frame < self.host.frames:
                    last = frame + r.randrange(10, 200)
                    rport = PORT if r.random() < 0.05 else r.randrange(32768, 60000)
                    self.connect(process, fd, frame, last, 443, f"10.1.{r.randrange(4)}.{r.randrange(250)}", rport)
                    # The descriptor may be used again at once.
                    frame = last + r.choice([0, 0, 30, 200])
        if program == "postgres" and not is_main:
            self.connect(process, 8, -1, FOREVER, 5432, "10.0.0.9", 40000 + process.pid % 20000)

    def faults(self):
        """Listeners on a port that nobody should listen on, at the moment that is asked about, or not."""
        host, at = self.host, self.at
        for fault, spans in {"listener": [(at - 20, at + 10)], "listened_before": [(at - 40, at - 5), (at - 40, at - 10)],
                             "listens_later": [(at + 2, at + 40)]}.items():
            if fault not in host.faults:
                continue
            process = host.add("helper", "/opt/helper/bin/helper", "helper.service", user="www-data")
            self.libraries(process, "helper")
            for k, (first, last) in enumerate(spans):
                self.listen(process, 5 + k, PORT, first, last)
            if fault == "listened_before":
                # The second descriptor is another socket afterwards.
                self.connect(process, 6, at - 10, FOREVER, 51000, "10.2.0.1", 443)
        if "replaced_in_time" in host.faults:
            # The process maps a copy of the library, which is replaced, and is restarted a minute
            # later. So it maps an old library for a minute, before the hour that is asked about.
            path = "/opt/tls-proxy/lib/libssl.so.3"
            for first, last in [(-1, self.replaced + 6), (self.replaced + 7, FOREVER)]:
                process = host.add("tls-proxy", "/opt/tls-proxy/bin/tls-proxy", "tls-proxy.service", first=first, last=last)
                host.restarts += ["tls-proxy.service"] if first >= 0 else []
                self.map_replaced(process, path, 400)

    def known(self):
        """The part of the answers that a host contributes."""
        listened = [
            [self.host.name, v.process.pid, v.process.ticks, v.values["fdnum"]] for v in self.sockets
            if v.values["sockstate"] == "LISTEN" and v.values["lport"] == PORT and v.first <= self.at < v.last
        ]
        old = {}
        for v in self.mapped:
            values = v.values
            is_it = values["deleted"] and f"/{LIBRARY}" in values["path"]
            if is_it and v.first < self.hour + FRAMES and v.last > self.hour:
                old.setdefault(values["path"], set()).add((v.process.pid, v.process.ticks))
        return {"listened": sorted(listened), "old": sorted([self.host.name, path, len(who)] for path, who in old.items())}


class Table:
    """One of the tables of a host."""

    def __init__(self, name, versions):
        self.schema = SCHEMAS[name]
        self.versions = sorted(versions, key=lambda v: (v.process.pid, v.process.ticks, v.key, v.first))
        self.first = np.array([v.first for v in self.versions], np.int64)
        self.last = np.array([v.last for v in self.versions], np.int64)
        whose = [(v.process.pid, v.process.ticks, v.key) for v in self.versions]
        # Which versions begin where the previous one of the same entry ended.
        self.continues = np.array(
            [k > 0 and whose[k] == whose[k - 1] and self.last[k - 1] == self.first[k] for k in range(len(whose))], bool)
        self.continued = np.append(self.continues[1:], False)
        self.columns = {
            field.name: [getattr(v.process, field.name, None) if field.name not in v.values else v.values[field.name]
                         for v in self.versions]
            for field in self.schema
        }
        self.columns["start_ticks"] = [v.process.ticks for v in self.versions]

    def hour(self, hour, ts, changes):
        """The rows of an hour. `ts` has the time of each of its frames, and `changes` the names of changes."""
        begin = hour * FRAMES
        rows = []  # version, frame, why
        for k in np.nonzero((self.first < begin + FRAMES) & (self.last > begin))[0]:
            a, b = int(self.first[k]), int(self.last[k])
            full = (f for f in range(begin, begin + FRAMES, FULL) if a <= f < b)
            rows += [(k, f, "full") for f in full]
            if a >= begin and a % FULL != 0:
                rows.append((k, a, "changed" if self.continues[k] else "new"))
            if b < begin + FRAMES and not self.continued[k]:
                rows.append((k, b, "ended"))
        # The versions of an entry follow each other already.
        rows.sort()
        index = np.array([k for k, _, _ in rows], np.int64)
        arrays = []
        for field in self.schema:
            if field.name == "ts":
                array = pa.array(ts[np.array([f - begin for _, f, _ in rows], np.int64)], pa.int64()).cast(field.type)
            elif field.name == "change":
                numbers = pa.array([changes.index(why) for _, _, why in rows], pa.int8())
                array = pa.DictionaryArray.from_arrays(numbers, pa.array(changes, pa.string()))
            else:
                column = self.columns[field.name]
                array = pa.array([column[k] for k in index], field.type)
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=self.schema)
