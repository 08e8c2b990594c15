#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests the tools that say whether tests passed: tools/test-runner and tools/kernel-witness.

The runner does not run these tests, because it could be wrong about itself. Results are printed as cargo does.
"""

import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
# This number is in the arguments of the processes that these tests start, because others may run
# the tests at the same time.
NUMBER = str(os.getpid())
LIMITS = """
limit_s = 30
left_s = 2
[[rule]]
tests = ["fake::is_stuck", "fake::ignores_sigterm", "fake::waits_in_the_kernel", "fake::never_stops_to_talk"]
limit_s = 1
[[rule]]
tests = ["fake::alone"]
alone = true
"""


def skip(why):
    """Reports a skip, as the other tests do."""
    with open(TARGET / "taskdiag-skips.txt", "a") as f:
        f.write(f"tests of the tools: {why}\n")
    raise unittest.SkipTest(why)


class Runner(unittest.TestCase):
    """Tests tools/test-runner with tests that behave badly."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.limits = pathlib.Path(self.directory.name) / "limits.toml"
        self.limits.write_text(LIMITS)

    def start(self, *tests, stuck="", jobs=2):
        command = [ROOT / "tools/test-runner", "--program", f"fake={HERE / 'fake_tests.py'}", "--limits", self.limits]
        filters = [f"fake::{t}" for t in tests]
        environment = {**os.environ, "FAKE_DIRECTORY": self.directory.name, "FAKE_STUCK": stuck, "FAKE_NUMBER": NUMBER}
        return subprocess.Popen(
            [*command, "--jobs", str(jobs), *filters],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )  # fmt: skip

    def run_tests(self, *tests, **options):
        """Returns (exit code, output) of the runner, which must end whatever its tests do."""
        child = self.start(*tests, **options)
        try:
            said, _ = child.communicate(timeout=400)
        except subprocess.TimeoutExpired:
            child.kill()
            self.fail(f"the runner does not end: {child.communicate()[0]}")
        return child.returncode, said

    def found(self, *words):
        """The pids of such processes, as text."""
        return subprocess.run(["pgrep", "-f", "-x", " ".join(words)], capture_output=True, text=True).stdout

    def none_is_left(self, *words):
        """Checks that no such process is left, now or soon."""
        end = time.monotonic() + 100
        while left := self.found(*words):
            self.assertLess(time.monotonic(), end, f"{words} is left: {left}")
            time.sleep(0.05)

    def test_counts_and_shows_what_fails(self):
        code, said = self.run_tests("passes", "fails", "dies", "runs_nothing", "a_helper_ends_later")
        self.assertEqual(code, 1, said)
        self.assertIn("test result: FAILED. 2 passed; 3 failed; 0 ignored;", said)
        self.assertIn("test fake::passes ... ok\n", said)
        self.assertIn("SKIPPED a part of it: for a reason\n", said)
        self.assertIn("test fake::fails ... FAILED\n", said)
        self.assertIn("one is not two", said.split("---- fake::fails stdout ----")[1])
        self.assertIn("ended by signal 6", said.split("---- fake::dies stdout ----")[1])
        self.assertIn("without having run the test", said.split("---- fake::runs_nothing stdout ----")[1])

    def test_passes_and_counts_the_ignored(self):
        code, said = self.run_tests("passes", "talks_a_lot")
        self.assertEqual((code, "test result: ok. 2 passed; 0 failed; 0 ignored;" in said), (0, True), said)

    def test_a_stuck_test_is_named_and_ended(self):
        code, said = self.run_tests("is_stuck", "passes")
        self.assertEqual(code, 1, said)
        self.assertIn("test fake::is_stuck is stuck after", said)
        self.assertIn("test result: FAILED. 1 passed; 1 failed;", said)
        told = said.split("---- fake::is_stuck stdout ----")[1]
        self.assertIn("its limit is 1 s", told)
        self.assertIn(": state S, in", told)
        self.assertIn("before it is stuck", told)

    def test_a_test_may_print_without_end(self):
        code, said = self.run_tests("never_stops_to_talk", "passes")
        self.assertEqual(code, 1, said[-3000:])
        self.assertIn("test fake::never_stops_to_talk is stuck after", said)
        self.assertIn("test result: FAILED. 1 passed; 1 failed;", said[-200:])

    def test_sigterm_may_be_ignored_by_all_of_it(self):
        code, said = self.run_tests("ignores_sigterm", "passes")
        self.assertEqual(code, 1, said)
        self.assertIn("test result: FAILED. 1 passed; 1 failed;", said)
        self.none_is_left("sleep", f"601.{NUMBER}")

    def test_goes_on_without_a_test_that_waits_in_the_kernel(self):
        if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            skip("a test that no signal ends is made with FUSE, for which root and /dev/fuse are needed")
        # A mount namespace of its own.
        done = subprocess.run(
            ["unshare", "-m", sys.executable, __file__, "Inside.goes_on"], capture_output=True, text=True, timeout=500
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_left_processes_fail_a_test(self):
        code, said = self.run_tests("leaves_a_process", "passes")
        self.assertEqual(code, 1, said)
        self.assertIn("test result: FAILED. 1 passed; 1 failed;", said)
        self.assertIn("(sleep)", said.split("---- fake::leaves_a_process stdout ----")[1])
        self.none_is_left("sleep", f"602.{NUMBER}")

    def test_left_daemons_fail_the_run(self):
        code, said = self.run_tests("leaves_a_daemon")
        self.assertEqual(code, 1, said)
        self.assertIn("test runner::no_process_is_left ... FAILED", said)
        self.none_is_left("sleep", f"603.{NUMBER}")

    def test_alone_is_alone(self):
        code, said = self.run_tests("alone", "beside_1", "beside_2", jobs=3)
        self.assertEqual(code, 0, said)
        self.assertIn("test result: ok. 3 passed;", said)

    def test_ends_all_when_it_is_ended(self):
        self.limits.write_text("limit_s = 600\nleft_s = 1")
        child = self.start("ignores_sigterm")
        end = time.monotonic() + 100
        while not self.found("sleep", f"601.{NUMBER}"):
            self.assertLess(time.monotonic(), end, "the test does not begin")
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=200)
        self.assertEqual(child.returncode, 130, said)
        self.assertIn("test fake::ignores_sigterm was running", said)
        self.none_is_left("sleep", f"601.{NUMBER}")

    def test_refuses_what_it_does_not_know(self):
        code, said = self.run_tests("there_is_no_such_test")
        self.assertEqual((code, "no such test" in said), (1, True), said)
        self.limits.write_text("limit_s = 1\nleft_s = 1\nlimits = 2\n")
        code, said = self.run_tests("passes")
        self.assertEqual((code, "unknown keys limits" in said), (1, True), said)
        self.limits.write_text("limit_s = 1\n")
        code, said = self.run_tests("passes")
        self.assertEqual((code, "it lacks left_s" in said), (1, True), said)


def witness_module():
    """Loads tools/kernel-witness as a module, to call its functions."""
    sys.path.insert(0, str(ROOT / "tools"))
    loader = importlib.machinery.SourceFileLoader("kernel_witness", str(ROOT / "tools/kernel-witness"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    # Data classes look up their module there.
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


class Witness(unittest.TestCase):
    """Tests tools/kernel-witness on the log of this machine, and on logs of other kernels."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def call(self, when, *more):
        command = [ROOT / "tools/kernel-witness", when, self.directory / "before", *more]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        return done.returncode, done.stdout

    def test_sees_a_line_of_the_log(self):
        line = f"BUG: taskdiag witness self-test {os.getpid()}"
        if pathlib.Path("/proc/sys/kernel/printk_devkmsg").read_text().strip() == "off":
            skip("the kernel's log takes no lines of programs here: printk.devkmsg=off")
        self.assertEqual(self.call("before")[0], 0)
        try:
            pathlib.Path("/dev/kmsg").write_text(f"<4>{line}\n")
        except OSError as e:
            skip(f"nobody can write to the kernel's log here: {e}")
        code, said = self.call("after", "--of-programs")
        self.assertEqual((code, line in said), (1, True), said)
        # A line of a program does not count as one of the kernel. The kernel may have written other
        # lines since.
        self.assertNotIn(line, self.call("after")[1])
        # Existing lines are not new.
        self.call("before")
        self.assertNotIn(line, self.call("after", "--of-programs")[1])

    def test_sees_a_taint(self):
        flags = self.directory / "tainted"
        flags.write_text("1\n")
        code, said = self.call("before", "--tainted", flags)
        self.assertEqual((code, "P: a proprietary module" in said), (0, True), said)
        flags.write_text(f"{1 | 1 << 7 | 1 << 9}\n")
        code, said = self.call("after", "--tainted", flags)
        self.assertEqual(code, 1, said)
        self.assertIn("new taint flags: D: an oops or BUG, W: a warning", said)

    def test_says_that_it_may_not_look(self):
        flags, skips = self.directory / "tainted", self.directory / "skips"
        flags.write_text("0\n")
        options = ["--tainted", flags, "--kmsg", self.directory / "none"]
        self.assertEqual(self.call("before", *options)[0], 0)
        code, said = self.call("after", *options, "--skips", skips)
        self.assertEqual((code, "log was not looked at" in said), (0, True), said)
        self.assertIn("log was not looked at", skips.read_text())
        flags.write_text("128\n")
        self.assertEqual(self.call("after", *options)[0], 1)

    def test_needs_a_before(self):
        code, said = self.call("after")
        self.assertEqual((code, "kernel-witness before" in said), (2, True), said)

    def test_knows_reports_from_other_lines(self):
        w = witness_module()
        oops = [
            "6,90,1,-;traps: victim[77] general protection fault ip:55e sp:7ffd error:0 in victim[55e,1000]",
            "6,91,1,-;victim[78]: segfault at 0 ip 000055 sp 00007ffe error 4 in victim",
            "4,92,1,-;taskdiag: hello\n SUBSYSTEM=x",
            "12,93,1,-;BUG: said by a program",
            "4,94,2,-,caller=T1;Oops: general protection fault, probably for non-canonical address 0x9bdc: 0000 [#1] SMP",
            "4,95,2,-;RIP: 0010:d_path+0x2a/0x130",
            "4,96,2,-;---[ end trace 0000000000000000 ]---",
            "6,97,3,-;eth0: link is up",
            "4,98,4,-;rcu: INFO: rcu_preempt self-detected stall on CPU",
        ]
        lines = [w.parse(record) for record in oops]
        before = {"boot": "b", "tainted": 0, "last": 89}
        after = {"boot": "b", "tainted": 0, "last": 98}
        v = w.judge(before, after, lines, (w.KERNEL,))
        self.assertEqual((len(v.bad), v.unknown), (2, []), v)
        self.assertIn("d_path+0x2a", v.bad[0])
        self.assertNotIn("link is up", v.bad[0])
        self.assertIn("self-detected stall", v.bad[1])
        self.assertEqual(w.judge(before, after, lines[:4], (w.KERNEL,)).bad, [])
        # Lines were overwritten unread, and the machine was started again.
        self.assertIn("1 lines", w.judge(before, after, lines[1:], (w.KERNEL,)).unknown[0])
        self.assertIn("restarted meanwhile", w.judge(before, {**after, "boot": "c"}, [], (w.KERNEL,)).bad[0])

    def test_knows_each_kind_of_complaint(self):
        is_complaint = witness_module().is_complaint
        for text in (
            "WARNING: CPU: 1 PID: 77 at kernel/fork.c:1 copy_process+0x1/0x2",
            "BUG: KASAN: slab-use-after-free in d_path+0x2a/0x130",
            "WARNING: possible circular locking dependency detected",
            "INFO: task cat:88 blocked for more than 122 seconds.",
            "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [cat:88]",
            "BUG: sleeping function called from invalid context at mm/a.c:1",
            "WARNING: suspicious RCU usage",
            "Unable to handle kernel paging request at virtual address 0",
            "BUG: Bad page state in process x  pfn:1",
        ):
            self.assertTrue(is_complaint(text), text)
        for text in ("Out of memory: Killed process 7 (mktask)", "warning: `x' uses wireless extensions", "bpf: hello"):
            self.assertFalse(is_complaint(text), text)


class Inside(Runner):
    """The tests that need a mount namespace. A test of Runner starts them in one."""

    def goes_on(self):
        import stuck_mount

        directory = f"{self.directory.name}/stuck"
        os.mkdir(directory)
        mount = stuck_mount.StuckMount(directory)
        try:
            code, said = self.run_tests("waits_in_the_kernel", "passes", stuck=f"{directory}/file")
            self.assertTrue(mount.asked.is_set(), said)
        finally:
            mount.close()
        self.assertEqual(code, 1, said)
        self.assertIn("test fake::waits_in_the_kernel cannot be ended", said)
        self.assertIn("test result: FAILED. 1 passed; 1 failed;", said)
        self.assertIn(": state D, in", said)
        self.assertIn("is still there", said)


class Results(unittest.TextTestResult):
    """Prints lines as cargo does."""

    def stopTest(self, test):
        super().stopTest(test)
        name = f"tools::{type(test).__name__}::{test._testMethodName.removeprefix('test_')}".lower()
        bad = [text for t, text in self.failures + self.errors if t is test]
        word = "FAILED" if bad else "ignored" if any(t is test for t, _ in self.skipped) else "ok"
        print(f"test {name} ... {word}", flush=True)
        for text in bad:
            print(f"---- {name} stdout ----\n{text}", flush=True)


def main():
    if len(sys.argv) > 1:
        case, method = sys.argv[1].split(".")
        suite = unittest.TestSuite([globals()[case](method)])
    else:
        suite = unittest.TestSuite(
            unittest.defaultTestLoader.loadTestsFromTestCase(c) for c in (Runner, Witness)
        )
    TARGET.mkdir(parents=True, exist_ok=True)
    quiet = open(os.devnull, "w")
    result = unittest.TextTestRunner(stream=quiet, resultclass=Results).run(suite)
    bad = len(result.failures) + len(result.errors)
    good = result.testsRun - bad - len(result.skipped)
    # Each skip has a line in the file of all skips.
    print(f"test result: {'FAILED' if bad else 'ok'}. {good} passed; {bad} failed; 0 ignored; tests of the tools\n")
    return 1 if bad or not good else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
