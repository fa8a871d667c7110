"""The command line: every command is a thin wrapper of a public function.

``commands.py`` and ``schema_commands.py`` hold the commands, ``reporters.py`` what they print and with which exit code.
Nothing is imported before a command needs it: checking a small bundle takes a fraction of the time of importing JAX.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]


def main() -> None:
    """Run the command line; the entry point ``neuralqx-struct``."""
    for stream in (sys.stdout, sys.stderr):
        # Names in files may hold what the terminal's encoding lacks; showing them escaped is better than failing.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    # Start-up makes many objects and no garbage; pydantic would look through every installed distribution for plug-ins.
    gc.set_threshold(100_000)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        code = _short_way(sys.argv[1:])
        if code is not None:
            sys.exit(code)
        from neuralqx_struct.cli.commands import app

        app(prog_name="neuralqx-struct")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever reads the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _short_way(words: Sequence[str]) -> int | None:
    """Run plain calls of the commands that hooks and CI call often; None if the call is not plain.

    Building the parser of all commands takes about as long as checking a small bundle. Everything that is not plain
    (help, mistakes, ``--format=json``) gives None and is left to the parser; so is what it would say about it.
    """
    if words[:1] not in (["validate"], ["verify"]):
        return None
    taken = {"--format": "text"}
    known = ("--format", "--schema") if words[0] == "validate" else ("--format",)
    paths: list[Path] = []
    rest = iter(words[1:])
    for word in rest:
        if word in known:
            taken[word] = next(rest, "")
        elif word.startswith("-"):
            return None
        else:
            paths.append(Path(word))
    from neuralqx_struct.cli import bundles
    from neuralqx_struct.cli.reporters import FORMATS, Format, run

    if not paths or taken["--format"] not in FORMATS or taken.get("--schema", "x")[:1] in ("", "-"):
        return None
    style = Format(taken["--format"])
    if words[0] == "verify":
        return run("verify", style, lambda: bundles.verify(paths))
    schema = Path(taken["--schema"]) if "--schema" in taken else None
    return run("validate", style, lambda: bundles.validate(paths, schema))
