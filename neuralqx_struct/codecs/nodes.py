"""Conversion between Python values and manifest nodes: the record of a codec, the encoder and the decoder.

A codec is one row of the tables in ``plain.py`` (no JAX needed), ``classes.py`` and ``jax.py``: a node kind, the Python types
that are saved in it, and a pair of functions.

Example:
    >>> from neuralqx_struct.manifest.kinds import BYTES
    >>> codec = Codec(BYTES, (bytes,), lambda v, _: {"base64": v.hex()}, lambda n, _: bytes.fromhex(n["base64"]))
    >>> node = Encoder(Codecs([codec])).encode(b"ab")
    >>> node
    {'__kind__': 'bytes', 'base64': '6162'}
    >>> Decoder(Codecs([codec]), {}).decode(node)
    b'ab'
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from neuralqx_struct.codecs.remedies import REMEDY, remedy_for
from neuralqx_struct.dtypes import dtype_name
from neuralqx_struct.errors import LIMITS, Diagnostic, Hint, SerializationError, StructError
from neuralqx_struct.manifest import DEFAULT_LIMITS, Limits
from neuralqx_struct.manifest.kinds import NodeKind, children
from neuralqx_struct.paths import FieldName, Path, array_name, format_path
from neuralqx_struct.printing import brief, is_unicode

Node = Any


def invalid_node(message: str, error: Exception | None = None) -> SerializationError:
    """The error of a node that the format allows and no value matches."""
    reason = "" if error is None else f"\n{error}"
    return SerializationError(message + reason, code="NQX612")


def unsaveable(message: str, hint: str | None = None) -> SerializationError:
    """The error of a value that cannot be saved; the encoder adds its path, and goes on to find others."""
    problem = Diagnostic("NQX430", "error", message, hint=hint or REMEDY)
    return SerializationError(problem)


def _placed(error: StructError, path: Iterable[Hashable]) -> list[Diagnostic]:
    """The problems of an error, at a place where they have none."""
    here = format_path(path)
    return [
        d if d.path.startswith("$") else replace(d, path=here, file=None) for d in error.diagnostics
    ]


class _TooManyError(SerializationError):
    """There are so many nodes that the search for other problems ends."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How one kind of value is written and read.

    Attributes:
        kind: Its nodes: their model, their children, how ``inspect`` shows them.
        types: Exact types of the values.
        encode: ``encode(value, encoder)`` returns the members of the node; the encoder is that of the table.
        decode: ``decode(node, decoder)`` returns the value; the decoder is that of the table.
        accepts: Whether other values are saved by this codec, too.
        raw: As ``decode``, for a reader that makes only dicts, lists and arrays of containers and
            instances of classes; None if it is the same.
    """

    kind: NodeKind
    types: tuple[type, ...]
    encode: Callable[[Any, Any], Mapping[str, Node]]
    decode: Callable[[Mapping[str, Node], Any], Any]
    accepts: Callable[[Any], bool] | None = None
    raw: Callable[[Mapping[str, Node], Any], Any] | None = None


class Codecs:
    """An immutable table of codecs; later ones take precedence for the same type or kind."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._all = tuple(codecs)
        self.by_type = {cls: codec for codec in codecs for cls in codec.types}
        self.by_kind = {codec.kind.tag: codec for codec in codecs}
        self._accepting = [(c.accepts, c) for c in reversed(codecs) if c.accepts is not None]

    def extended(self, codecs: Sequence[Codec]) -> Codecs:
        """A new table with more codecs."""
        return Codecs((*self._all, *codecs))

    def require(self, kinds: Iterable[str]) -> None:
        """Raises TypeError unless there is a codec for every node kind."""
        missing = [tag for tag in kinds if tag not in self.by_kind]
        if missing:
            raise TypeError(f"expected a codec for every node kind, got none for {missing}")

    def find(self, value: Any) -> Codec | None:
        """The codec of a value: by its exact type, else the last one that accepts it."""
        found = self.by_type.get(type(value))
        if found is not None:
            return found
        return next((codec for accepts, codec in self._accepting if accepts(value)), None)


def _is_json(value: Any) -> bool:
    """Returns whether a value is its own node."""
    kind = type(value)
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    if kind is str:
        return value.isascii() or is_unicode(value)
    if kind is float:
        return isfinite(value)
    return kind is bool or kind is type(None)


class Encoder:
    """Converts values to nodes and collects their arrays.

    Args:
        codecs: The table.
        copy: Copy numpy arrays, so that later changes by the caller have no effect.
        limits: Largest tree that is encoded.

    Attributes:
        arrays: Arrays by the name that their nodes use; an array that occurs twice has one name.
        problems: Values that cannot be saved.
    """

    def __init__(
        self, codecs: Codecs, *, copy: bool = False, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self.codecs = codecs
        self._limits = limits
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.problems: list[Diagnostic] = []
        self._copy = copy
        self._path: list[Hashable] = []
        self._open: set[int] = set()
        self._count = 0
        self._names: dict[int, str] = {}
        self._suffixes: dict[str, int] = {}
        self._alive: list[Any] = []  # keeps ids unique until the end

    def encode(self, value: Any, *keys: Hashable) -> Node:
        """The node of ``value``, which is at ``keys`` below the current place."""
        # One function: the stack must hold the deepest nest that is allowed.
        if _is_json(value):
            return value
        self._path.extend(keys)
        try:
            codec = self.codecs.find(value)
            depth = len(self._open)
            if codec is None:
                message = f"expected a value that can be saved, got {_named(value)}"
                raise unsaveable(message, remedy_for(value))
            if id(value) in self._open:
                message = f"expected a tree, got a {type(value).__name__} that contains itself"
                raise unsaveable(message, _NO_LOOP)
            if depth >= self._limits.depth:
                raise self._too_deep()
            self._count += 1
            if self._count > self._limits.nodes:
                most = self._limits.nodes
                error = unsaveable(f"expected at most {most} nodes, got more", _FEWER)
                raise _TooManyError([*self.problems, *_placed(error, self._path)])
            problems = len(self.problems)
            self._open.add(id(value))
            try:
                node = codec.kind.node(**codec.encode(value, self))
            finally:
                self._open.discard(id(value))
            deepest = depth + 1 == self._limits.depth and len(self.problems) == problems
            if deepest and any(True for _ in children(node)):
                raise self._too_deep()  # readers count plain values as well
        except _TooManyError:
            raise
        except SerializationError as error:
            self.problems += _placed(error, self._path)
            return None
        else:
            return node
        finally:
            if keys:
                del self._path[-len(keys) :]

    def _too_deep(self) -> SerializationError:
        message = f"expected at most {self._limits.depth} levels, got more"
        return unsaveable(message, _FLATTER)

    def encode_all(self, values: Iterable[Any]) -> list[Node]:
        """The nodes of the items of a sequence."""
        nodes: list[Node] = []
        copied = tuple(values)  # at once: another thread may change them meanwhile
        for index, value in enumerate(copied):
            nodes.append(value if _is_json(value) else self.encode(value, index))
        return nodes

    def encode_pairs(self, pairs: Iterable[tuple[Any, Any]]) -> list[list[Node]]:
        """The nodes of the keys and values of a dict."""
        nodes: list[list[Node]] = []
        for key, value in list(pairs):  # see encode_all
            nodes.append([self.encode(key), self.encode(value, key)])
        return nodes

    def put_array(self, array: np.ndarray[Any, Any], owner: Any) -> dict[str, Node]:
        """Keeps an array and returns the members of its node.

        Args:
            array: The data.
            owner: The object of the user; two nodes of one owner share the array.
        """
        name = self._names.get(id(owner))
        if name is None:
            base = name = array_name(self._path)
            while name in self.arrays:
                suffix = self._suffixes[base] = self._suffixes.get(base, 1) + 1
                name = f"{base}~{suffix}"
            self._names[id(owner)] = name
            self._alive.append(owner)
            mutable = array is owner and not hasattr(array, "is_deleted")  # JAX arrays never change
            self.arrays[name] = array.copy() if self._copy and mutable else array
        return {"name": name, "dtype": dtype_name(array.dtype), "shape": list(array.shape)}

    @property
    def path(self) -> Path:
        """The current place."""
        return tuple(self._path)

    def finish(self) -> None:
        """Raises all problems together.

        Raises:
            SerializationError: With every value that cannot be saved, and its path.
        """
        if self.problems:
            raise SerializationError(self.problems)


_NO_LOOP = "save the parts without the link back, and make the link after loading"
_FLATTER = Hint("flatten the nest before saving it, or pass ", LIMITS, " for more")
_FEWER = Hint(
    "save numbers as an array; a container met many times is saved as often; or pass ",
    LIMITS,
    " for more",
)


def _named(value: Any) -> str:
    """The description of a value that no codec saves."""
    cls = type(value)
    if cls is str:
        return f"{value[:40]!r}, which is not Unicode text"
    name = getattr(value, "__qualname__", None) if callable(value) else None
    if isinstance(name, str):
        return f"the {cls.__name__} {name}"
    return f"a {cls.__module__}.{cls.__qualname__}"


class Decoder:
    """Converts nodes to values.

    Args:
        codecs: The table.
        arrays: The arrays by name; read when a node needs them.

    Attributes:
        problems: Nodes that cannot be converted; :meth:`finish` raises them together.
    """

    def __init__(self, codecs: Codecs, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.codecs = codecs
        self.arrays = arrays
        self.problems: list[Diagnostic] = []
        self._path: list[Hashable] = []
        self._raised: set[type[StructError]] = set()
        self._cause: BaseException | None = None

    @property
    def path(self) -> Path:
        """The current place."""
        return tuple(self._path)

    def decode(self, node: Node, *keys: Hashable) -> Any:
        """The value of ``node``, which is at ``keys`` below the current place."""
        if type(node) is not dict:
            return self.all(node) if type(node) is list else node
        self._path.extend(keys)
        try:
            return self.codecs.by_kind[node["__kind__"]].decode(node, self)
        except OSError:  # a disk or a server that fails: no other array would be read either
            raise
        except StructError as error:
            self._note(error)
            return None
        finally:
            if keys:
                del self._path[-len(keys) :]

    def _note(self, error: StructError) -> None:
        self._raised.add(type(error))
        self._cause = self._cause or error.__cause__
        self.problems += _placed(error, self._path)

    def array(self, node: Mapping[str, Node]) -> np.ndarray[Any, Any]:
        """The array that a node names."""
        return self.arrays[node["name"]]

    def all(self, nodes: Iterable[Node]) -> list[Any]:
        """The values of the nodes of a sequence."""
        values: list[Any] = []
        for index, node in enumerate(nodes):
            values.append(self.decode(node, index) if type(node) in (dict, list) else node)
        return values

    def pairs(
        self, node: Mapping[str, Node], as_key: Callable[[Any], Any] | None = None
    ) -> list[tuple[Any, Any]]:
        """The keys and values of the ``items`` of a dict node.

        Args:
            node: The node.
            as_key: Makes a key of the value of its node, if that is not the key itself.
        """
        found: list[tuple[Any, Any]] = []
        seen: set[Any] = set()
        problems = len(self.problems)
        for key_node, value_node in node["items"]:
            key = key_node if type(key_node) is str else self.decode(key_node)
            if as_key is not None:
                key = as_key(key)
            try:
                twice = key in seen
                seen.add(key)
            except TypeError:
                message = f"expected hashable dict keys, got a {type(key).__name__}"
                raise SerializationError(message, code="NQX612") from None
            if twice and len(self.problems) == problems:  # keys that cannot be read are all None
                message = f"expected each dict key once, got {brief(key)} twice"
                hint = "keep one of the values, and leave the others out"
                raise SerializationError(message, code="NQX612", hint=hint)
            found.append((key, self.decode(value_node, key)))
        return found

    def fields(self, node: Mapping[str, Node]) -> dict[str, Any]:
        """The values of the ``fields`` of a node."""
        values: dict[str, Any] = {}
        # A comprehension would take the stack of one more call.
        for name, child in node["fields"].items():
            values[name] = self.decode(child, FieldName(name))
        return values

    def finish(self) -> None:
        """Raises all problems together.

        Raises:
            SerializationError: With every problem and its path; of a subclass if all problems are of that.
        """
        if not self.problems:
            return
        raised = self._raised.pop() if len(self._raised) == 1 else SerializationError
        kind = raised if issubclass(raised, SerializationError) else SerializationError
        raise kind(self.problems) from self._cause
