# SPDX-License-Identifier: MIT OR Apache-2.0
"""Drives a headless Chromium by its DevTools protocol, over the pipe that it has for that, so that no library is needed.

    with Browser() as browser:
        browser.size(1280, 900)
        browser.open(path)
        browser.value("document.title")

What goes wrong in the page is collected in `complaints`: exceptions, messages of the console, violations of the page's policy, and
requests for anything but the page itself.
"""

import base64
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome"]


def program():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, seconds=120):
        self.until = time.monotonic() + seconds
        self.complaints, self.requests, self.events, self.buffer, self.number = [], [], [], b"", 0
        self.home = tempfile.TemporaryDirectory(prefix="taskdiag-browser-", ignore_cleanup_errors=True)

    def __enter__(self):
        to_browser, self.to = os.pipe()
        self.back, from_browser = os.pipe()

        # Chromium reads from descriptor 3 and writes to 4. Copies above them come first, since a
        # pipe may have these numbers.
        def pipes():
            ours = [os.dup(fd) for fd in (to_browser, from_browser)]
            high = [os.dup2(fd, n) for fd, n in zip(ours, (60, 61))]
            for fd, n in zip(high, (3, 4)):
                os.dup2(fd, n, inheritable=True)

        flags = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-extensions"]
        flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
        flags += ["--disable-dev-shm-usage", "--font-render-hinting=none", f"--user-data-dir={self.home.name}/profile"]
        # Chromium's own sandbox refuses root.
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []
        environment = {**os.environ, "HOME": self.home.name, "TZ": "UTC"}
        self.child = subprocess.Popen(
            [program(), *flags, "about:blank"], close_fds=False, preexec_fn=pipes, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(self.home.name + "/log", "wb"),
        )
        os.close(to_browser)
        os.close(from_browser)
        target = self.call("Target.createTarget", url="about:blank", session=None)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True, session=None)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(domain + ".enable")
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait()
        self.home.cleanup()

    def message(self):
        while b"\0" not in self.buffer:
            left = self.until - time.monotonic()
            ready = left > 0 and select.select([self.back], [], [], left)[0]
            piece = ready and os.read(self.back, 1 << 20)
            if not piece:
                log = pathlib.Path(self.home.name, "log").read_text(errors="replace")[-2000:]
                raise SystemExit(f"the browser does not answer{' in time' if not ready else ''}: {log}")
            self.buffer += piece
        one, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(one)

    def call(self, method, session="own", **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            got = self.message()
            if got.get("id") == self.number:
                if "error" in got:
                    raise SystemExit(f"{method}: {got['error']}")
                return got["result"]
            self.event(got)

    def event(self, got):
        method, params = got.get("method"), got.get("params", {})
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append("exception: " + details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append("console: " + json.dumps([a.get("value") for a in params["args"]]))
        elif method == "Log.entryAdded":
            self.complaints.append(f"log: {params['entry']['source']}: {params['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def size(self, width, height, dark=False, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, path):
        """Open a file, and return the seconds until it was loaded, which is after its script has run."""
        self.events.clear()
        begin = time.monotonic()
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        while "Page.loadEventFired" not in self.events:
            self.event(self.message())
        return time.monotonic() - begin

    def value(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise SystemExit(f"{expression}: {json.dumps(got['exceptionDetails'])[:2000]}")
        return got["result"].get("value")

    def key(self, name, code=0):
        for kind in ["rawKeyDown", "char", "keyUp"] if name == "Enter" else ["rawKeyDown", "keyUp"]:
            more = {"text": "\r"} if kind == "char" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **more)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, x, y):
        for kind in ["mousePressed", "mouseReleased"]:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def wait(self, expression):
        """Wait until an expression is true. The limit of the browser is the limit of this, too."""
        while not self.value(expression):
            if time.monotonic() > self.until:
                raise SystemExit(f"this did not become true: {expression}")
            time.sleep(0.05)

    def picture(self, file, whole=True):
        got = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(file).write_bytes(base64.b64decode(got["data"]))
