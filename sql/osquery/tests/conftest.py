# SPDX-License-Identifier: MIT OR Apache-2.0
"""The part of osqueryd that an extension talks to. The Thrift classes are those that the osquery project publishes, and SQLite
plans the queries: it says which columns and conditions a table is asked for, as in osqueryd."""

import contextlib
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import apsw
import pytest
from osquery.extensions import Extension, ExtensionManager
from osquery.extensions.ttypes import ExtensionStatus
from thrift.protocol import TBinaryProtocol
from thrift.server import TServer
from thrift.transport import TSocket, TTransport

PROGRAM = os.environ["TASKDIAG_OSQUERY"]
UUID = 4711


class Osqueryd(ExtensionManager.Iface):
    """Takes the registration of an extension, and asks it for rows."""

    def __init__(self, socket, code=0):
        self.socket, self.code = socket, code
        self.info = self.registry = self.deregistered = self.child = None
        self.registered, self.pings, self.requests = threading.Event(), 0, []
        transport = TSocket.TServerSocket(unix_socket=socket)
        self.server = TServer.TThreadedServer(
            ExtensionManager.Processor(self), transport, TTransport.TBufferedTransportFactory(),
            TBinaryProtocol.TBinaryProtocolFactory(), daemon=True,
        )
        threading.Thread(target=self.server.serve, daemon=True).start()

    def registerExtension(self, info, registry):
        self.info, self.registry = info, registry
        self.registered.set()
        if self.code:
            return ExtensionStatus(code=self.code, message="Duplicate extension registered")
        return ExtensionStatus(code=0, message="OK", uuid=UUID)

    def deregisterExtension(self, uuid):
        self.deregistered = uuid
        return ExtensionStatus(code=0, message="OK")

    def ping(self):
        self.pings += 1
        return ExtensionStatus(code=0, message="OK")

    @contextlib.contextmanager
    def extension(self):
        """The extension's own interface."""
        socket = TSocket.TSocket(unix_socket=f"{self.socket}.{UUID}")
        transport = TTransport.TBufferedTransport(socket)
        until(lambda: Path(f"{self.socket}.{UUID}").exists())
        transport.open()
        yield Extension.Client(TBinaryProtocol.TBinaryProtocol(transport))
        transport.close()

    def generate(self, table, context):
        self.requests.append((table, context))
        with self.extension() as client:
            answer = client.call("table", table, {"action": "generate", "context": json.dumps(context)})
        if answer.status.code:
            raise apsw.SQLError(answer.status.message)
        return answer.response

    def peak(self):
        """The largest amount of memory that the extension has used so far, in bytes."""
        lines = Path(f"/proc/{self.child.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

    def said(self):
        """The text that the extension has written to standard error. It is ended for that."""
        self.child.terminate()
        return self.child.communicate(timeout=60)[1]

    def columns(self, table):
        return {c["name"]: (c["type"], int(c["op"])) for c in self.registry["table"][table]}

    def sql(self, text):
        """The rows of a query. The requests that it made are in self.requests."""
        self.requests.clear()
        db = apsw.Connection(":memory:")
        db.create_module("osquery", Module(self), use_bestindex_object=True)
        for table in self.registry["table"]:
            db.execute(f"create virtual table {table} using osquery({table})")
        return list(db.execute(text))


class Module:
    """Tables of SQLite whose rows an extension has."""

    def __init__(self, osqueryd):
        self.osqueryd = osqueryd

    def Create(self, db, module, database, name, *args):
        columns = self.osqueryd.columns(name)
        return f"create table x({', '.join(f'`{n}` {kind}' for n, (kind, _) in columns.items())})", Table(self.osqueryd, name)

    Connect = Create


class Table:
    def __init__(self, osqueryd, name):
        self.osqueryd, self.name = osqueryd, name
        self.columns = list(osqueryd.columns(name).items())

    def BestIndexObject(self, index):
        constraints = []
        cost = 1_000_000
        for i in range(index.nConstraint):
            column = index.get_aConstraint_iColumn(i)
            if index.get_aConstraint_usable(i) and column >= 0:
                index.set_aConstraintUsage_argvIndex(i, len(constraints) + 1)
                name, (_, options) = self.columns[column]
                constraints.append((name, index.get_aConstraint_op(i)))
                cost = 1 if options & 1 else cost
        used = [name for i, (name, _) in enumerate(self.columns) if min(i, 63) in index.colUsed]
        index.estimatedCost = cost
        index.idxStr = json.dumps([constraints, used])
        return True

    def Open(self):
        return Cursor(self)

    def Disconnect(self):
        pass

    Destroy = Disconnect


class Cursor:
    def __init__(self, table):
        self.table = table

    def Filter(self, _number, text, values):
        constraints, used = json.loads(text)
        by_name = {}
        for (name, op), value in zip(constraints, values, strict=True):
            by_name.setdefault(name, []).append({"op": op, "expr": "" if value is None else str(value)})
        kinds = dict(self.table.columns)
        context = {
            "constraints": [{"name": n, "list": c, "affinity": kinds[n][0]} for n, c in by_name.items()],
            "colsUsed": used,
        }
        self.rows = self.table.osqueryd.generate(self.table.name, context)
        self.at = 0

    def Eof(self):
        return self.at >= len(self.rows)

    def Rowid(self):
        return self.at

    def Column(self, number):
        # As in osqueryd, text that is not a number is NULL in a column of numbers, and so is a
        # missing value.
        name, (kind, _) = self.table.columns[number]
        value = self.rows[self.at].get(name)
        if value is None or kind == "TEXT":
            return value
        return float(value) if kind == "DOUBLE" else int(value)

    def Next(self):
        self.at += 1

    def Close(self):
        pass


def until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen within a minute"
        time.sleep(0.02)


@pytest.fixture
def run(tmp_path):
    """Starts the extension, and ends it."""
    started = []

    def start(socket, *args):
        command = [PROGRAM, "--socket", str(socket), "--timeout", "20", "--interval", "3", *args]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture(params=["procfs", "bpf", "auto"])
def osqueryd(request, tmp_path, run):
    """osqueryd with the extension, for each engine that works here."""
    manager = Osqueryd(str(tmp_path / "osquery.em"))
    manager.child = run(manager.socket, "--engine", request.param)
    assert manager.registered.wait(60)
    if request.param == "bpf":
        try:
            manager.sql("select count(*) from taskdiag_processes")
        except apsw.SQLError as why:
            pytest.skip(f"bpf: {why}")
    return manager
