# SPDX-License-Identifier: MIT OR Apache-2.0
"""A part of psutil's own tests runs against taskdiag.psutil. `python/tests/psutil_suite/run --check` runs the whole."""

import subprocess
import sys
from pathlib import Path

SUITE = Path(__file__).parent / "psutil_suite/run"


def test_fast_part():
    run = subprocess.run([sys.executable, SUITE, "--fast", "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
