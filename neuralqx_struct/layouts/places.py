"""Places: the values of a file or a payload with their numbers in names, and values that no array shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from neuralqx_struct.layouts.forms import Form
from neuralqx_struct.layouts.frames import Frame
from neuralqx_struct.layouts.table import ArrayEntry
from neuralqx_struct.manifest.lazy_arrays import LazyArray
from neuralqx_struct.paths import Path, format_path
from neuralqx_struct.schema.sizes.solver import Solver

#: A value that nothing gives.
NOTHING: Final[Any] = object()


@dataclass(slots=True, eq=False)
class Place:
    """A value.

    Attributes:
        numbers: The numbers and keys around it, for the slots of names; of layers that are apart, 0.
        scope: The sizes that the struct sees.
        frames: The lists and stacked structs around it that have one array for all items, and stacked ones.
        path: The path.
        node: The node of the payload, when a file is written.
    """

    numbers: tuple[str, ...]
    scope: Solver
    frames: tuple[Frame, ...]
    path: Path
    node: Any = None

    @property
    def text(self) -> str:
        """The path in messages."""
        return format_path(self.path)


@dataclass(slots=True, eq=False)
class Leaf:
    """One array of the schema.

    Attributes:
        place: Its place.
        entry: Its entry.
        form: Its form in the file.
        node: Its node, which gets the shape.
        names: The names in the file, of all arrays that it is made of, by layer and then by name of the rule.
        dtype: Its dtype.
        shape: Its shape, once known.
        arrays: The array itself when a file is read; when one is written, those of the file, by name.
    """

    place: Place
    entry: ArrayEntry
    form: Form
    node: dict[str, Any]
    names: tuple[str, ...] = ()
    dtype: str = ""
    shape: tuple[int, ...] = ()
    arrays: Sequence[LazyArray] = ()


class Values:
    """The values that no array shows: of the caller, of the layout, and those that the file has beside its arrays.

    Args:
        given: Values by the path of their field, without numbers and keys; the first mapping that has one wins.
        shown: The values of the file by name.
    """

    def __init__(
        self,
        given: Sequence[Mapping[str, Any]] = (),
        shown: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._given, self._shown = given, shown
        self.used: set[str] = set()

    def of(self, key: str) -> Any:
        """The value that the caller or the layout has for a path or a size, or NOTHING."""
        self.used.add(key)
        return next((known[key] for known in self._given if key in known), NOTHING)

    def named(self, name: str) -> Any:
        """The value that the file has under a name, or NOTHING."""
        return self._shown.get(name, NOTHING)

    @property
    def sizes(self) -> dict[str, int]:
        """The whole numbers whose key is one name, which may be sizes."""
        found: dict[str, int] = {}
        for known in reversed(self._given):
            found |= {key: n for key, n in known.items() if type(n) is int and key.isidentifier()}
        return found
