"""Payloads: a manifest together with its arrays, and the check that both agree.

Arrays are mappings by name, which may read, fetch or compute an array on access: :class:`HeldArrays`, and for files subclasses
of :class:`StoredArrays` in ``formats/``. Readers and writers of files (``formats/``, ``bundle/``) call :func:`check`; codecs make
values of a payload.

Example:
    >>> import numpy as np
    >>> node = {"__kind__": "array", "name": "w", "dtype": "float32", "shape": [2]}
    >>> document = {"version": 1, "manifest": node, "arrays": {"w": {"dtype": "float32", "shape": [2]}}}
    >>> [d.code for d in check(Payload(document, {"w": np.zeros(3, "float32")}))]
    ['NQX412']
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from neuralqx_struct.dtypes import DTYPES, dtype_name, dtype_named
from neuralqx_struct.errors import (
    READ_MORE,
    Diagnostic,
    SerializationError,
    did_you_mean,
    has_errors,
)
from neuralqx_struct.manifest import DEFAULT_LIMITS, Findings, Limits
from neuralqx_struct.manifest.check import check_manifest
from neuralqx_struct.manifest.kinds import (
    ARRAY,
    BIGINT,
    BYTEARRAY,
    BYTES,
    FULL,
    KINDS,
    NUMPY_SCALAR,
    nodes_below,
    show,
)
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.printing import array_text, brief_scalar, read_decimal

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


Region = tuple[slice, ...]
"""A part of an array: a slice of each of its dimensions."""


class ForeignArray(NamedTuple):
    """An array of a foreign file, or of any other source; nothing of it is read before :attr:`read` is called.

    Attributes:
        dtype: The name of its dtype here; the format's own name of one that cannot be read.
        shape: Its shape.
        read: Returns the array, mapped and read-only if the file allows it.
        slices: Returns a part of the array, if the file has a cheaper way to it than ``read``.
        cheap: True if reading it again costs nothing, as in a mapped file or in memory.
        several: Yields several parts, if there is a cheaper way to them than one by one.
    """

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], Array]
    slices: Callable[[Region], Array] | None = None
    cheap: bool = False
    several: Callable[[Iterable[Region]], Iterator[Array]] | None = None

    @property
    def readable(self) -> bool:
        """True if arrays of its dtype can be read."""
        return self._itemsize() is not None

    def _itemsize(self) -> int | None:
        try:
            return dtype_named(self.dtype).itemsize
        except SerializationError:
            return None

    @property
    def nbytes(self) -> int:
        """Its size when read; 0 if its dtype cannot be read."""
        return prod(self.shape) * (self._itemsize() or 0)

    def part(self, region: Region) -> Array:
        """A part of the array: a slice of each dimension."""
        return self.read()[region] if self.slices is None else self.slices(region)

    def parts(self, regions: Iterable[Region]) -> Iterator[Array]:
        """Yields several parts."""
        if self.several is not None:
            return self.several(regions)
        return map(self.read().__getitem__ if self.slices is None else self.slices, regions)


class StoredArrays(Mapping[str, "Array"]):
    """Arrays in a file that are read on access, in the order of their names.

    Opening the file compares their dtypes and shapes with the records; doing that later would read their bytes.
    """

    __slots__ = ("_names",)

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    @property
    def far(self) -> bool:
        """True if each access waits for a server: :meth:`expect` then saves time."""
        return False

    def expect(self, names: Iterable[str]) -> None:
        """Announces the arrays that will be read next, in this order, so that several are fetched at a time."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def at_hand(self, name: str) -> bool:  # noqa: ARG002 - a store can have arrays of both kinds
        """True if reading an array again costs nothing, as in a mapped file or in memory."""
        return False

    def divisible(self, name: str) -> bool:  # noqa: ARG002 - a store can have arrays of both kinds
        """True if :meth:`parts` reads less than the whole array."""
        return False

    @abstractmethod
    def verify(self, name: str) -> Diagnostic | None:
        """Compares the stored bytes of one array with its checksum."""

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Yields parts of one array; a store reads no more than these if it can."""
        whole = self[name]
        for region in regions:
            yield whole[region]


class HeldArrays(StoredArrays):
    """Arrays in memory, on devices or in another bundle, or computed from those; fetched on access, not kept.

    Args:
        held: The arrays by name; it may be lazy.
        fetch: Returns a numpy array of another object.
        made: Functions that compute an array, by name.
        names: The names to include, in their order; those of ``held`` if left out.

    Example:
        >>> import numpy as np
        >>> arrays = HeldArrays({"a": np.ones(2), "b": np.ones(3)}, made={"c": lambda: np.zeros(1)}, names=["a", "c"])
        >>> [(name, array.tolist()) for name, array in arrays.items()]
        [('a', [1.0, 1.0]), ('c', [0.0])]
    """

    __slots__ = ("_fetch", "_held", "_made")

    def __init__(
        self,
        held: Mapping[str, Any],
        fetch: Callable[[Any], Array] | None = None,
        *,
        made: Mapping[str, Callable[[], Array]] = MappingProxyType({}),
        names: Iterable[str] | None = None,
    ) -> None:
        super().__init__(held if names is None else dict.fromkeys(names))
        self._held, self._fetch, self._made = held, fetch, made

    def __getitem__(self, name: str) -> Array:
        found = self.original(name)
        return found if name in self._made else self.fetch(found)

    @property
    def far(self) -> bool:
        """True if the arrays that it holds are far."""
        return isinstance(self._held, StoredArrays) and self._held.far

    def expect(self, names: Iterable[str]) -> None:
        """Announces arrays to the bundle that has them."""
        if isinstance(self._held, StoredArrays):
            self._held.expect(name for name in names if self._source(name) is not None)

    def at_hand(self, name: str) -> bool:
        """True for arrays in memory, and those that are at hand in a bundle."""
        source = self._source(name)
        return name not in self._made if source is None else source.at_hand(name)

    def divisible(self, name: str) -> bool:
        """True for arrays of a bundle that divides them."""
        source = self._source(name)
        return source is not None and source.divisible(name)

    def original(self, name: str) -> Any:
        """The object of a name, for stores that write it from its place.

        Raises:
            KeyError: The name is not included.
        """
        if name not in self._names:
            raise KeyError(name)
        return self._made[name]() if name in self._made else self._held[name]

    def fetch(self, original: Any) -> Array:
        """A numpy array of an object, or of a part of it."""
        return original if self._fetch is None else self._fetch(original)

    def verify(self, name: str) -> Diagnostic | None:
        """Compares the stored bytes of an array of a bundle with its checksum."""
        source = self._source(name)
        return None if source is None else source.verify(name)

    def parts(self, name: str, regions: Iterable[Region]) -> Iterator[Array]:
        """Yields parts of one array."""
        source = self._source(name)
        return super().parts(name, regions) if source is None else source.parts(name, regions)

    def _source(self, name: str) -> StoredArrays | None:
        """The stored arrays that have the array, unless it is computed or in memory."""
        stored = name in self._names and name not in self._made
        return self._held if stored and isinstance(self._held, StoredArrays) else None


@dataclass(frozen=True, slots=True)
class Payload:
    """The content of a bundle.

    Attributes:
        document: The manifest document.
        arrays: The arrays by name; may be lazy and read a file on access.
    """

    document: dict[str, Any]
    arrays: Mapping[str, Array]


def check(payload: Payload, limits: Limits = DEFAULT_LIMITS) -> list[Diagnostic]:
    """Checks a payload: the manifest by itself, then nodes, records and arrays together.

    Args:
        payload: The payload that was read or will be written.
        limits: Largest tree that is accepted.

    Returns:
        All findings; arrays left unused by a migration are ``info``.
    """
    found = check_manifest(payload.document, limits=limits)
    return found if has_errors(found) else found + check_arrays(payload, limits.full_bytes)


def _nodes_by_kind(root: Any) -> dict[str, list[dict[str, Any]]]:
    """All nodes of a valid tree by their tags, without their paths; plain values apart."""
    found: dict[str, list[dict[str, Any]]] = {tag: [] for tag in KINDS}
    level = [root]
    while level:
        for node in level:
            if type(node) is dict:
                found[node["__kind__"]].append(node)
        level, _ = nodes_below(level)
    return found


def check_arrays(payload: Payload, most: int) -> list[Diagnostic]:
    """Checks that the nodes, records and arrays of a valid manifest agree.

    Dtype and shape of node, record and array must be the same, also for shape ``[]``; every array node needs a record and
    an array; an array without a node is an error unless its record has ``"unused": true``. Of lazy arrays only the names are
    compared. Arrays that nodes describe without storing them may have ``most`` bytes.
    """
    root, records = payload.document["manifest"], payload.document["arrays"]
    arrays = payload.arrays
    found = Findings()
    nodes = _nodes_by_kind(root)
    named: set[str] = set()
    agree = True
    for node in nodes[ARRAY.tag]:
        name = node["name"]
        record = records.get(name)
        named.add(name)
        if record is None or record["shape"] != node["shape"] or record["dtype"] != node["dtype"]:
            agree = False
    if not agree:
        _compare_nodes(root, records, found)
    described = nodes[FULL.tag] + nodes[NUMPY_SCALAR.tag]
    _measure(described, most, found)
    if any(map(_misfit, described)):
        _find_misfits(root, found)
    texts = nodes[BYTES.tag] + nodes[BYTEARRAY.tag]
    if any(map(_is_cut, texts)):
        _find_cut(root, found)
    unused = [name for name, record in records.items() if "unused" in record]
    in_memory = not isinstance(arrays, StoredArrays)
    held = set(arrays)
    if not unused and not in_memory and held == named == records.keys():
        return found  # nothing is missing and nothing is left over
    for name, record in records.items():
        path = _record(name)
        if name not in held:
            message = "expected an array of this name in the array file, got none"
            found.add("NQX409", path, message)
        elif in_memory:
            _compare_array(path, record, arrays[name], found)
        if name in named and "unused" in record:
            message = 'expected no node to name an array whose record says "unused": true, got one'
            found.add("NQX410", path, message)
        elif name not in named and "unused" not in record:
            message = "expected every array to be named by a node, got one that none names"
            hint = 'mark its record "unused": true if it is meant to stay'
            found.add("NQX410", path, message, hint)
    for name in arrays:
        if name not in records:
            message = "expected a record for every array, got none for this one"
            found.add("NQX410", _record(name), message)
    return [*found, *map(_left_over, (name for name in unused if name not in named))]


def _record(name: Any) -> str:
    """The path of the record of an array."""
    return format_path((FieldName("arrays"), FieldName(str(name))))


def _left_over(name: str) -> Diagnostic:
    hint = "it takes room and does no harm; load and export the checkpoint to leave it out"
    message = "an array that a migration left unused"
    return Diagnostic("NQX410", "info", message, _record(name), hint=hint)


def _compare(
    path: str, wanted: Mapping[str, Any], got: Mapping[str, Any], where: str, found: Findings
) -> None:
    """Compares dtype and shape of nodes and records."""
    expected, actual = wanted["dtype"], got["dtype"]
    try:
        same = expected == actual or dtype_named(expected) == dtype_named(actual)
    except SerializationError as error:
        for problem in error.diagnostics:
            found.add(problem.code, path, problem.message, problem.hint)
        return
    texts = [array_text(each["dtype"], each["shape"]) for each in (wanted, got)]
    message = f"expected {texts[0]}, got {texts[1]}{where}"
    if not same:
        found.add("NQX411", path, message)
    if wanted["shape"] != got["shape"]:
        found.add("NQX412", path, message)


def _compare_nodes(root: Any, records: Mapping[str, Any], found: Findings) -> None:
    for path, node in ARRAY.within(root):
        if found.full:
            return
        name = node["name"]
        where = format_path(path)
        if name in records:
            _compare(where, node, records[name], f" in the record of array {name!r}", found)
        else:
            hint = did_you_mean(name, list(records)[:1000])
            message = f"expected a record for array {name!r}, got none"
            found.add("NQX409", where, message, hint)


def _compare_array(path: str, record: Mapping[str, Any], array: Any, found: Findings) -> None:
    import numpy as np

    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        message = f"expected a numpy array, got {type(array).__name__}"
        found.add("NQX612", path, message)
        return
    before = len(found)
    try:
        held = {"dtype": dtype_name(array.dtype), "shape": list(array.shape)}
    except SerializationError as error:
        found.add(error.code, path, error.diagnostics[0].message, error.diagnostics[0].hint)
        return
    _compare(path, record, held, "", found)
    stored = record.get("nbytes", array.nbytes)
    nbytes = prod(record["shape"]) * array.itemsize
    if len(found) == before and stored != nbytes:
        shown = array_text(record["dtype"], record["shape"])
        message = f"expected {nbytes} bytes for {shown}, got {stored} in the record"
        found.add("NQX408", path, message)


def _measure(described: Iterable[Mapping[str, Any]], most: int, found: Findings) -> None:
    """Refuses constant arrays that take too much memory: a few bytes of text can describe any size."""
    total, largest = 0, (-1, "")
    for node in described:
        try:
            dtype = dtype_named(node["dtype"])
        except SerializationError:
            continue  # the decoder reports it
        shape = node.get("shape", ())
        nbytes = prod(shape) * dtype.itemsize
        total += nbytes
        largest = max(largest, (nbytes, array_text(node["dtype"], shape)[:80]))
    if total > most:
        expected = f"at most {most} bytes of arrays that are described and not stored"
        message = f"expected {expected}, got more\nthe largest is {largest[1]}"
        found.add("NQX505", "$", message, READ_MORE)


def _misfit(node: Mapping[str, Any]) -> bool:
    """Returns whether a dtype cannot hold the number of a node."""
    value = node["value"]
    if BIGINT.matches(value):
        value = read_decimal(value["value"])
    dtype = DTYPES.get(node["dtype"])
    if dtype is not None:
        return type(value) in (bool, int, float) and not dtype.holds(value)
    return type(value) is int and node["dtype"].lstrip("<>=|")[:1] in ("S", "U")


def _find_misfits(root: Any, found: Findings) -> None:
    for path, node in FULL.within(root) + NUMPY_SCALAR.within(root):
        if _misfit(node):
            value = show(node["value"]).value
            message = f"expected a value of dtype {node['dtype']}, got {value}"
            found.add("NQX612", format_path(path), message)


def _is_cut(node: Mapping[str, Any]) -> bool:
    """Whether the base64 text of a node has characters of an incomplete group."""
    return len(node["base64"]) % 4 != 0


def _find_cut(root: Any, found: Findings) -> None:
    for path, node in BYTES.within(root) + BYTEARRAY.within(root):
        if _is_cut(node):
            message = f"expected base64 text, got {brief_scalar(node['base64'])}"
            found.add("NQX614", format_path(path), message)
