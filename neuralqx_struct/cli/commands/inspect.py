"""The command ``inspect``: shows the contents of a bundle or a foreign file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neuralqx_struct.cli.arguments import LIMITS, option, parse_depth, path, switch
from neuralqx_struct.cli.command import Command
from neuralqx_struct.cli.report import Report
from neuralqx_struct.errors import Diagnostic
from neuralqx_struct.manifest import Limits

if TYPE_CHECKING:
    from neuralqx_struct.tools.inspection import Inspection

_SCREEN: Final = 40  # rows without --depth, or fewer on a lower terminal
_HEAD: Final = 8  # lines around them
_FEWEST: Final = 12


def run(
    path: Path,
    filter: str | None,  # noqa: A002
    depth: str | int | None,
    *,
    stats: bool,
    limits: Limits | None,
) -> Report:
    """Shows the contents of a bundle or a foreign file."""
    from neuralqx_struct.filters import FilterError
    from neuralqx_struct.tools import inspection

    found: list[Diagnostic] = []
    try:
        record = inspection.inspect(path, filter, report=found, stats=stats, limits=limits)
    except FilterError as error:
        if error.code == "NQX426":  # nothing matches the filter
            return Report(diagnostics=error.diagnostics)
        return Report(failures=error.diagnostics)  # the filter cannot be read
    if depth is None:
        text = _one_screen(record, stats=stats)
    else:
        text = record.outline(None if depth == "all" else int(depth))
    return Report(text, tuple(found), {"bundle": record.to_json()})


def _one_screen(record: Inspection, *, stats: bool) -> str:
    """The table of a bundle, as much of it as fits the terminal."""
    size = shutil.get_terminal_size((80, _SCREEN + _HEAD))
    most = min(max(size.lines - _HEAD, _FEWEST), _SCREEN) // (1 + stats)
    note = "; --depth all shows every row" if len(record.rows) > most else ""
    return f"{record.outline(most=most, width=max(size.columns, 80))}{note}"


COMMAND = Command(
    name="inspect",
    function="neuralqx_struct.inspect",
    run=run,
    help="Show the contents of a bundle, or of a file such as model.safetensors.",
    arguments=(
        path("path", "A bundle, or a file of another program.", "PATH"),
        option("filter", "Such as 'tag:trainable & !path:**/bias'.", "FILTER"),
        option(
            "depth",
            "Count what is deeper in the row around it; without it, one screen is shown.",
            "N|all",
            parse=parse_depth,
        ),
        switch("stats", "Read the arrays: range, mean, NaN and zeros of each."),
        LIMITS,
    ),
    examples=(
        "inspect ckpt",
        "inspect ckpt --filter 'tag:trainable' --stats",
        "inspect model.safetensors --depth all",
    ),
    members=("bundle",),
)
