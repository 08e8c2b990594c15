# SPDX-License-Identifier: MIT OR Apache-2.0
"""A plugin of pytest that puts taskdiag.psutil in the place of psutil: `pytest -p instead_of_psutil`.

psutil's own tests import psutil and modules inside of it. They get taskdiag.psutil, with the real modules inside, so
that helpers and constants are found.
"""

import sys

import psutil as real

import taskdiag.psutil as ours

ours.__path__ = real.__path__
sys.modules["psutil"] = ours
