"""Functions from source text, where loops and calls would cost more than all else.

Only names that Python has accepted as identifiers reach the text; values come in as constants.

Example:
    >>> add = compiled("add(x)", block("if x > 0", ["return x + one"]), {"one": 1}, title="addition")
    >>> add(2), add(-2)
    (3, None)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from neuralqx_struct.fieldspec import Values


def block(head: str, lines: Iterable[str]) -> list[str]:
    """The lines of a compound statement."""
    return [f"{head}:", *[f"    {line}" for line in lines]]


def compiled(
    head: str,
    lines: Iterable[str],
    constants: Values,
    *,
    title: str,
    scope: dict[str, Any] | None = None,
) -> Any:
    """Compiles a function.

    Args:
        head: Its name and its parameters in parentheses.
        lines: Its body.
        constants: Values by the names that the text has for them.
        title: Its description in tracebacks.
        scope: Its globals.
    """
    function = [*block(f"def {head}", lines), f"return {head.partition('(')[0]}"]
    source = "\n".join(block(f"def _nqx_make({', '.join(constants)})", function))
    found: dict[str, Any] = {}
    exec(compile(source, f"<generated {title}>", "exec"), {} if scope is None else scope, found)  # noqa: S102
    return found["_nqx_make"](**constants)
