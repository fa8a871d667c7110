"""Plans: the part that reading and writing a file share: numbers of sizes, and problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neuralqx_struct.errors import (
    Diagnostic,
    SerializationError,
    has_errors,
)
from neuralqx_struct.layouts.places import Leaf
from neuralqx_struct.layouts.table import settings_of
from neuralqx_struct.layouts.walk import Walk, value_hint
from neuralqx_struct.manifest.lazy_arrays import LazyArray
from neuralqx_struct.schema.sizes.comparison import extent
from neuralqx_struct.schema.text import FIX_THESE_FIRST, MAX_PROBLEMS
from neuralqx_struct.types.text import format_extents

#: The fix of shapes and dtypes that differ.
RULE = "correct its rule in the layout, or the type in the schema"


class Plan:
    """The part that both directions share.

    Attributes:
        walk: The walk over the schema.
        found: All problems.
    """

    walk: Walk

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []

    def report(self, code: str, path: str, message: str, hint: str | None = None) -> None:
        """Adds a problem."""
        self.found.append(Diagnostic(code, "error", message, path=path, hint=hint))

    def size(self, leaf: Leaf) -> Callable[[Any], int | None]:
        """Returns the numbers of sizes at the place of an array."""
        scope = leaf.place.scope
        return lambda each: None if each is ... else scope.size(each)

    def settle(
        self, leaves: Sequence[Leaf], made: Callable[[Leaf], Sequence[LazyArray] | None]
    ) -> None:
        """Makes all arrays; one can give the sizes that others need."""
        waiting = [*leaves]
        while waiting:
            self.found += self.walk.dims.solve()
            if has_errors(self.found):
                return
            left = []
            for leaf in waiting:
                arrays = made(leaf)
                if arrays is None:
                    left.append(leaf)
                else:
                    leaf.arrays = arrays
            if len(left) == len(waiting):
                break
            waiting = left
        for leaf in waiting if not has_errors(self.found) else ():
            self._unknown(leaf)

    def _unknown(self, leaf: Leaf) -> None:
        """Reports an array whose sizes are not known."""
        rule, size = leaf.form.rule, self.size(leaf)
        written = [*(rule.sizes or ()), *(rule.reshape or ())]
        written += [] if rule.blocks is None else [rule.blocks]
        sizes = [*map(extent, written), *leaf.form.inner]
        names = {n for each in sizes if each is not ... and size(each) is None for n in each.names}
        unknown = sorted(name for name in names if size(extent(name)) is None)
        where = leaf.place.text
        open_axes = [each for each in leaf.form.inner if each is ... or size(each) is None]
        derivable = rule.reshape is not None and len(open_axes) < 2
        if not unknown or (derivable and not rule.sizes and rule.blocks is None):
            shown = f"[{format_extents(leaf.form.inner)}]"
            self.report("NQX412", where, f"expected sizes that make {shown}, got others", RULE)
            return
        listed = ", ".join(unknown)
        message = f"expected sizes that the arrays show, got {listed}, which none of them does"
        hint: str = value_hint(unknown[0])
        settings = settings_of(self.walk.document).intersection(unknown)
        if settings:
            line = ", ".join(f"{name}: {{}}" for name in sorted(settings))
            hint = f"write `dims: {{{line}}}` in the schema: sizes of that name are then the static field of the root"
        self.report("NQX707", where, message, hint)

    def refuse_errors(self) -> None:
        """Raises all problems.

        Raises:
            SerializationError: There are some.
        """
        found = list(dict.fromkeys(self.found))
        if not has_errors(found):
            return
        if len(found) > MAX_PROBLEMS:
            message = f"expected at most {MAX_PROBLEMS} problems, got {len(found)}"
            last = Diagnostic("NQX005", "error", message, hint=FIX_THESE_FIRST)
            found[MAX_PROBLEMS:] = [last]
        raise SerializationError(found)
