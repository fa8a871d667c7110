"""Progress bars: on a terminal only, and on stderr, so that results can be piped.

Example:
    >>> with progress_bar("migrating") as advance:
    ...     advance is None  # not a terminal
    True
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar while the block runs; gives the function ``(done, total)`` that moves it, or None where none is shown."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
