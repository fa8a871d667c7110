"""The command line: each command is a thin layer over a public function.

``commands/`` has a module for each command, ``parser.py`` the command line made from their records, ``printing.py`` the
printed results and exit codes. A command imports only the modules that it uses, so checking a small bundle takes a
fraction of the time of importing JAX.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import shlex
import sys
from collections.abc import Sequence

__all__ = ["call", "main"]


def main() -> None:
    """Runs the command line; the entry point ``neuralqx-struct``."""
    _open_streams()
    # Start-up makes many objects and no garbage; pydantic would search every installed distribution for plug-ins.
    gc.set_threshold(100_000)
    # An exit that searched all objects for garbage would take a fifth of a short command.
    atexit.register(gc.freeze)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.exit(call(sys.argv[1:]))


def call(words: Sequence[str]) -> int:
    """Runs a call with these arguments; returns the exit code."""
    try:
        from neuralqx_struct.cli.parser import run

        return run(words)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as shells report it: 128 and the number of SIGPIPE
    except Exception as error:  # noqa: BLE001 - outside of a command: while its arguments are read
        return _crashed(error, words)


def _open_streams() -> None:
    """Gives the program its three streams, also where the shell closed one (``>&-``)."""
    # In this order: a file that is opened takes the lowest number that is free.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115
            os.set_inheritable(stream.fileno(), True)  # git and other programs need three, too
            setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names in files may have characters that the terminal's encoding lacks: show them escaped.
            stream.reconfigure(errors="backslashreplace")


def _crashed(error: Exception, words: Sequence[str]) -> int:
    """Prints the report of an error outside of a command; returns the exit code."""
    from neuralqx_struct.cli.printing import show
    from neuralqx_struct.cli.report import Report
    from neuralqx_struct.cli.terminal import Output

    def fail() -> Report:
        raise error

    verbose = not {"-v", "--verbose"}.isdisjoint(words)
    return show("", Output(verbose=verbose), fail, line=shlex.join(["neuralqx-struct", *words]))
