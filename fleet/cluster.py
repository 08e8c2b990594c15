# SPDX-License-Identifier: MIT OR Apache-2.0
"""A cluster of Ballista on this machine: one scheduler, executors and a client, each a process of its own.

They talk over the loopback device, through ports that were free when the cluster began. All of them end with this process,
however it ends. `tools/setup ballista` builds the programs.
"""

import json
import os
import pathlib
import re
import select
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

PROGRAMS = ["ballista-scheduler", "ballista-executor", "ballista-cli"]
# The scheduler and the executors each may take this long to begin.
BEGIN_S = 60
# Ballista's own values are 60, 180 and 15 seconds.
HEARTBEAT = {"heartbeat": 2, "timeout": 10, "check": 2}


def programs():
    """Where the programs are: in $TASKDIAG_BALLISTA, or where tools/setup has put them. None if they are not there."""
    cache = os.environ.get("TASKDIAG_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "taskdiag")
    directory = pathlib.Path(os.environ.get("TASKDIAG_BALLISTA") or f"{cache}/ballista/bin")
    return directory if all(os.access(directory / name, os.X_OK) for name in PROGRAMS) else None


def version():
    """The version that the scheduler reports, or None if a program is not there."""
    directory = programs()
    if not directory:
        return None
    said = subprocess.run([directory / PROGRAMS[0], "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout
    return said.split()[-1]


def free_ports(count):
    """Different ports of the loopback device that are not in use."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def by_table(lake, to):
    """Links the files of each table into a directory of the table, which is how Ballista can tell them apart."""
    for file in pathlib.Path(lake).resolve().glob("date=*/hour=*/host=*/*.parquet"):
        table = re.sub(r"-\d+$", "", file.stem)
        link = pathlib.Path(to, table, *file.parts[-4:])
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)


class Failed(RuntimeError):
    """The client's message about a statement that it refused, or that failed."""


class Cluster:
    """Ends its processes and removes its files when it is closed."""

    def __init__(self, executors=2, heartbeat=HEARTBEAT):
        self.programs = programs()
        if not self.programs:
            raise Failed("Ballista is not there: run tools/setup ballista")
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="taskdiag-ballista-"))
        self.processes = {}
        self.heartbeat = heartbeat
        try:
            self.port, = free_ports(1)
            self.start("scheduler", PROGRAMS[0], "--bind-host", "127.0.0.1", "--external-host", "127.0.0.1",
                       "--bind-port", self.port, "--task-distribution", "round-robin",
                       "--executor-timeout-seconds", heartbeat["timeout"],
                       "--expire-dead-executor-interval-seconds", heartbeat["check"])
            self.wait("scheduler", self.listens)
            for n in range(executors):
                self.start_executor(f"executor-{n}")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def start(self, name, program, *arguments, **keywords):
        """Starts a program that ends with this process. Its output goes to a file, unless
        `keywords` say something else."""
        with open(self.directory / f"{name}.log", "wb") as log:
            # setpriv becomes the program, so the process has its pid.
            command = ["setpriv", "--pdeathsig", "KILL", self.programs / program, *map(str, arguments)]
            environment = {**os.environ, "TZ": "UTC", "HOME": str(self.directory), "TMPDIR": str(self.directory)}
            environment.pop("RUST_LOG", None)
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **keywords}
            self.processes[name] = subprocess.Popen(command, cwd=self.directory, env=environment, **streams)

    def start_executor(self, name):
        """Starts an executor with one thread for queries, and waits until the scheduler knows it."""
        ports = free_ports(3)
        work = self.directory / name
        work.mkdir(exist_ok=True)
        self.start(name, PROGRAMS[1], "--id", name, "--vcores", 1, "--memory-pool-size", "4GiB", "--work-dir", work,
                   "--scheduler-host", "127.0.0.1", "--scheduler-port", self.port,
                   "--bind-host", "127.0.0.1", "--external-host", "127.0.0.1", "--bind-port", ports[0],
                   "--bind-grpc-port", ports[1], "--bind-health-port", ports[2],
                   "--executor-heartbeat-interval-seconds", self.heartbeat["heartbeat"])
        self.wait(name, lambda: self.ready(ports[2]))

    def listens(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True

    @staticmethod
    def ready(port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return answer.status == 200

    def wait(self, name, reached):
        """Waits until `reached()` reports that without an error. Raises if the process ends, or if it takes too long."""
        end = time.monotonic() + BEGIN_S
        while True:
            try:
                if reached():
                    return
            except OSError:
                pass
            if self.processes[name].poll() is not None or time.monotonic() > end:
                raise Failed(f"{name} does not begin: {self.log(name)[-2000:]}")
            time.sleep(0.05)

    def log(self, name):
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def kill(self, name):
        """Kills a process as a crash would, without any notice."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def sum_of(self, file, field):
        """The sum of a number in a file of /proc over the processes of the cluster."""
        total = 0
        for process in self.processes.values():
            for line in open(f"/proc/{process.pid}/{file}", encoding="utf-8", errors="replace"):
                if line.startswith(field + ":"):
                    total += int(line.split()[1])
        return total

    def close(self):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()
        self.processes = {}
        shutil.rmtree(self.directory, ignore_errors=True)


class Session:
    """A ballista-cli that is kept running. It answers one statement after the other."""

    def __init__(self, cluster, name="client", limit=900):
        self.cluster, self.name, self.limit = cluster, name, limit
        self.columns = {}
        cluster.start(name, PROGRAMS[2], "--host", "127.0.0.1", "--port", cluster.port, "--format", "json",
                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process = cluster.processes[name]
        self.run("select 1 as one")

    def run(self, statement):
        """The rows of a statement, each a dictionary without the columns that are null."""
        said_before = len(self.cluster.log(self.name))
        # The client takes lines until a semicolon. The next command shows where the answer ends,
        # even the answer to a statement that fails.
        self.process.stdin.write(" ".join(statement.split("\n")).encode() + b";\n\\quiet\n")
        self.process.stdin.flush()
        said, end = b"", time.monotonic() + self.limit
        while not re.search(rb"Quiet mode is \w+\n", said):
            if select.select([self.process.stdout], [], [], 1)[0]:
                more = os.read(self.process.stdout.fileno(), 1 << 16)
                said += more
                if not more:
                    break
            # The shell continues to read lines after a statement that it cannot parse.
            elif time.monotonic() > end or "Invalid statement" in self.cluster.log(self.name)[said_before:]:
                break
        answer = re.fullmatch(r"(?s)\s*(?:Ballista CLI [^\n]*\n)?(.*?)(\d+) row\(s\) fetched\. .*", said.decode())
        if not answer:
            raise Failed((said.decode() + self.cluster.log(self.name)[said_before:])[-4000:])
        rows = json.loads(answer[1] or "[]")
        if len(rows) != int(answer[2]):
            raise Failed(f"the client says that there are {answer[2]} rows, and prints {len(rows)}")
        return rows

    def prepare(self, sql):
        """Finds out which columns the answer will have. Without rows, the client does not print their names."""
        self.run(f"create or replace view answer as {sql}")
        rows = self.run("select column_name from information_schema.columns where table_name = 'answer' order by ordinal_position")
        self.columns[sql] = [row["column_name"] for row in rows]

    def __call__(self, sql):
        if sql not in self.columns:
            self.prepare(sql)
        names = self.columns[sql]
        return names, [[row.get(name) for name in names] for row in self.run(sql)]

    def bytes_read(self):
        """How many bytes all processes of the cluster have read with system calls, also of files that they wrote for each other."""
        return self.cluster.sum_of("io", "rchar")

    def peak_rss_kib(self):
        """The sum of the most memory that each process has had, which need not have been at the same time."""
        return self.cluster.sum_of("status", "VmHWM")
