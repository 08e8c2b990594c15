# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where the proc filesystem is: `taskdiag.psutil.PROCFS_PATH`, which programs set, as they do with psutil's."""

import sys


def procfs_path():
    """The directory that programs have set."""
    return sys.modules["taskdiag.psutil"].PROCFS_PATH
