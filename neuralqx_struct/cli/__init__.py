"""The command line: each command is a thin layer over a public function.

``table.py`` has the table of commands, ``parser.py`` the command line made from it, ``reports.py`` the printed results
and exit codes. A command imports only the modules that it uses, so checking a small bundle takes a fraction of the time
of importing JAX.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Runs the command line; the entry point ``neuralqx-struct``."""
    for stream in (sys.stdout, sys.stderr):
        # Names in files may have characters that the terminal's encoding lacks: show them escaped.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    # Start-up makes many objects and no garbage; pydantic would search every installed distribution for plug-ins.
    gc.set_threshold(100_000)
    # An exit that searched all objects for garbage would take a fifth of a short command.
    atexit.register(gc.freeze)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from neuralqx_struct.cli.commands import run_plain
        from neuralqx_struct.cli.table import find_command

        code = run_plain(*find_command(sys.argv[1:]))
        if code is not None:
            sys.exit(code)
        from neuralqx_struct.cli.parser import app

        app(prog_name="neuralqx-struct")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of the output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as shells report it: 128 and the number of SIGPIPE
    except Exception as error:  # noqa: BLE001 - outside of a command: while its arguments are read
        sys.exit(_crashed(error))


def _crashed(error: Exception) -> int:
    """Prints the report of an error outside of a command; returns the exit code."""
    import shlex

    from neuralqx_struct.cli.reports import run
    from neuralqx_struct.cli.results import Output

    def fail() -> Any:
        raise error

    verbose = not {"-v", "--verbose"}.isdisjoint(sys.argv)
    return run("", Output(verbose=verbose), fail, line=shlex.join(sys.argv))
