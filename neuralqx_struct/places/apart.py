"""Programs of the package that run in a process of their own: what a file or a server sends may end or hold that, not yours."""

from __future__ import annotations

import json
import subprocess
import sys


def started(program: str) -> subprocess.Popen[bytes]:
    """Starts a module of the package, by its file; it imports from where this process does.

    It ends when its input does, and so with this process.
    """
    paths = json.dumps([each for each in sys.path if isinstance(each, str) and each])
    return subprocess.Popen(  # noqa: S603 - our own module, and no shell
        # Without the site module it starts in half the time, and no folder of the caller is looked in.
        [sys.executable, "-I", "-S", program, paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
