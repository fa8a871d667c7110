"""The two walks between values and manifest nodes, which a table of codecs drives.

Owns the :class:`Codec` record, the tables that are made of it, and :class:`Encoder` and :class:`Decoder`: paths, problems,
shared arrays, limits. ``plain_codecs.py`` has the kinds that need no JAX, ``codecs.py`` all of them. A new kind of value is
one codec: the tag, the types it takes, encode and decode side by side (and a row in ``manifest_grammar.NODE_KINDS``,
which says what its node looks like).

Example:
    >>> words = Codecs([Codec("bytes", (bytes,), lambda v, _: {"base64": v.hex()}, lambda n, _: bytes.fromhex(n["base64"]))])
    >>> node = Encoder(words).encode(b"ab")
    >>> node
    {'__kind__': 'bytes', 'base64': '6162'}
    >>> Decoder(words, {}).decode(node)
    b'ab'
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from neuralqx_struct.errors import Diagnostic, SerializationError, StructError
from neuralqx_struct.manifest import DEFAULT_LIMITS
from neuralqx_struct.manifest_rules import node_children
from neuralqx_struct.paths import FieldName, Path, array_name, format_path
from neuralqx_struct.payload import dtype_name
from neuralqx_struct.printing import brief

__all__ = ["Codec", "Codecs", "Decoder", "Encoder", "known_remedy"]

Node = Any


@dataclass(frozen=True, slots=True)
class Codec:
    """How one kind of value is written and read.

    Attributes:
        kind: The tag ``__kind__``.
        types: Exact types that it takes.
        accepts: For values whose type is not known beforehand: whether the codec takes this one.
        encode: ``encode(value, encoder)`` gives the members of the node.
        decode: ``decode(node, decoder)`` gives the value back.
    """

    kind: str
    types: tuple[type, ...]
    encode: Callable[[Any, Encoder], Mapping[str, Node]]
    decode: Callable[[Mapping[str, Node], Any], Any]  # the decoder is of the kind that the codec's table is made for
    accepts: Callable[[Any], bool] | None = None


class Codecs:
    """An immutable table of codecs; later ones win over earlier ones of the same type or tag."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._all = tuple(codecs)
        self.by_type: Mapping[type, Codec] = {t: c for c in codecs for t in c.types}
        self.by_kind: Mapping[str, Codec] = {c.kind: c for c in codecs}
        self._accepting = tuple(c for c in reversed(codecs) if c.accepts is not None)

    def extended(self, codecs: Sequence[Codec]) -> Codecs:
        """A new table with more codecs."""
        return Codecs((*self._all, *codecs))

    def find(self, value: Any) -> Codec | None:
        """The codec for a value: by its exact type, else the newest one that accepts it."""
        found = self.by_type.get(type(value))
        if found is not None:
            return found
        return next((c for c in self._accepting if c.accepts is not None and c.accepts(value)), None)


def _is_json(value: Any) -> bool:
    """True for values that stand for themselves in a manifest."""
    kind = type(value)
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    if kind is str:
        return bool(value.isascii() or _is_unicode(value))
    if kind is float:
        return isfinite(value)
    return kind is bool or kind is type(None)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Encoder:
    """One walk from values to nodes; collects the arrays beside the tree.

    Args:
        codecs: The table.
        copy: Copy numpy arrays, so that what the caller writes into them later is not in the result.

    Attributes:
        arrays: Arrays by the name that their nodes use. An array that is met twice has one name.
    """

    def __init__(self, codecs: Codecs, *, copy: bool = False) -> None:
        self.codecs = codecs
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.problems: list[Diagnostic] = []
        self._copy = copy
        self._path: list[Hashable] = []
        self._open: set[int] = set()
        self._count = 0
        self._names: dict[int, str] = {}
        self._suffixes: dict[str, int] = {}
        self._alive: list[Any] = []  # keeps ids unique while the walk lasts

    @property
    def path(self) -> Path:
        """Where the walk is."""
        return tuple(self._path)

    def encode(self, value: Any, *keys: Hashable) -> Node:
        """The node of ``value``, which stands at ``keys`` below the current place."""
        if _is_json(value):
            return value
        self._path.extend(keys)
        try:
            codec, kind = self.codecs.find(value), type(value)
            if codec is None:
                self.refuse(f"expected a value that can be saved, got {_named(value)}", hint=_remedy(value))
                return None
            depth = len(self._open)
            if id(value) in self._open:
                self.refuse(f"expected a tree, got a {kind.__name__} that contains itself", hint=_NO_LOOP)
                return None
            if depth >= DEFAULT_LIMITS.depth:
                self._too_deep()
                return None
            self._count += 1
            if self._count > DEFAULT_LIMITS.nodes:
                self.refuse(f"expected at most {DEFAULT_LIMITS.nodes} nodes, got more", hint=_FEWER)
                raise SerializationError(self.problems)
            problems = len(self.problems)
            self._open.add(id(value))
            try:
                node = {"__kind__": codec.kind, **codec.encode(value, self)}
            finally:
                self._open.discard(id(value))
            if (
                depth + 1 == DEFAULT_LIMITS.depth
                and len(self.problems) == problems
                and any(True for _ in node_children(node))
            ):
                self._too_deep()  # a reader counts what stands for itself as well
            return node
        finally:
            if keys:
                del self._path[-len(keys) :]

    def encode_all(self, values: Iterable[Any]) -> list[Node]:
        """The nodes of the items of a sequence; most of the time of a long list is spent here."""
        nodes: list[Node] = []
        add, is_json = nodes.append, _is_json
        for index, value in enumerate(tuple(values)):  # taken at once, see encode_pairs
            add(value if is_json(value) else self.encode(value, index))
        return nodes

    def encode_pairs(self, pairs: Iterable[tuple[Any, Any]]) -> list[list[Node]]:
        """The nodes of the keys and values of a dict."""
        nodes: list[list[Node]] = []
        is_json = _is_json
        for key, value in list(pairs):  # taken at once: another thread may write into the dict meanwhile
            nodes.append(
                [key if is_json(key) else self.encode(key), value if is_json(value) else self.encode(value, key)]
            )
        return nodes

    def _too_deep(self) -> None:
        self.refuse(
            f"expected at most {DEFAULT_LIMITS.depth} levels, got more", hint="flatten the nest before saving it"
        )

    def refuse(self, message: str, *, hint: str | None = None, code: str = "NQX430") -> None:
        """Note that the value at the current place cannot be saved; the walk goes on to find the others."""
        self.problems.append(Diagnostic(code, "error", message, path=format_path(self._path), hint=hint or _REMEDY))

    def put_array(self, array: np.ndarray[Any, Any], owner: Any) -> dict[str, Node]:
        """Keep an array beside the tree and give the members that refer to it.

        Args:
            array: The data.
            owner: The object the user had; two nodes of one owner share the array.
        """
        name = self._names.get(id(owner))
        if name is None:
            base = name = array_name(self._path)
            while name in self.arrays:
                suffix = self._suffixes[base] = self._suffixes.get(base, 1) + 1
                name = f"{base}~{suffix}"
            self._names[id(owner)] = name
            self._alive.append(owner)
            copied = self._copy and array is owner and not hasattr(array, "is_deleted")  # JAX's own never change
            self.arrays[name] = array.copy() if copied else array
        return {"name": name, "dtype": dtype_name(array.dtype), "shape": list(array.shape)}

    def finish(self) -> None:
        """Raise if anything could not be saved.

        Raises:
            SerializationError: With every such value and its path.
        """
        if self.problems:
            raise SerializationError(self.problems)


_REMEDY = "mark its field serialize=False, register the type with register_pytree_type, or convert it first"
_NO_LOOP = "save the parts without the link back, and make the link after loading"
_FEWER = "save numbers as an array; a container that is met many times is saved as often"
_CODE = (
    "functions and classes are code and not saved by their definition: give them names at the top level of a module, mark "
    "the field serialize=False and load with fill=, or keep the arrays alone, as equinox.partition(module, "
    "equinox.is_array) and flax's state.params do"
)
# What to do with values of well-known classes, by the names of the classes that they derive from.
_REMEDIES: Mapping[str, str] = {
    "flax.nnx.pytreelib:Pytree": "save nnx.state(module), which holds its arrays, and merge it after loading",
    "flax.nnx.graphlib:GraphDef": "save the state alone, and make the graph anew with nnx.split",
    "flax.linen.module:Module": "save its params alone; the module is code",
    "numpy:void": "save the fields of the record one by one",
    "jax:ShapeDtypeStruct": "save arrays; shapes and dtypes alone are what load(path, abstract=True) gives",
    "jax:P": "save tuple(spec), and make the PartitionSpec of it with a converter",
    "optax._src.base:GradientTransformation": "save the optimiser's state alone; the transformation is code",
    "flax.training.train_state:TrainState": "save its step, params and opt_state; the transformation and the functions are code",
    "decimal:Decimal": "save str(value) and make the number of it with a converter",
    "fractions:Fraction": "save value.as_integer_ratio() and make the number of it with a converter",
    "uuid:UUID": "save str(value) and make the UUID of it with a converter",
}


def known_remedy(cls: type) -> str | None:
    """What to do with instances of a class that cannot be saved, where that is known."""
    return next(
        (_REMEDIES[n] for n in (f"{c.__module__}:{c.__qualname__}" for c in cls.__mro__) if n in _REMEDIES), None
    )


def _remedy(value: Any) -> str:
    if isinstance(value, str):
        return "half of a surrogate pair is no text: save value.encode('utf-8', 'surrogatepass')"
    if callable(value) and isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return _CODE
    return known_remedy(type(value)) or (_CODE if callable(value) else _REMEDY)


def _named(value: Any) -> str:
    """A value that no codec takes, in the words of the message."""
    if isinstance(value, str):
        return f"{value[:40]!r}, which is not Unicode text" if type(value) is str else f"a {type(value).__qualname__}"
    name = getattr(value, "__qualname__", None) if callable(value) else None
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return f"the {type(value).__name__} {name}" if isinstance(name, str) else f"a {kind}"


class Decoder:
    """One walk from nodes to values.

    Args:
        codecs: The table.
        arrays: The arrays by name; read when a node asks for them.

    Attributes:
        problems: What did not fit; the walk goes on, :meth:`finish` raises them together.
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
        """Where the walk is."""
        return tuple(self._path)

    def decode(self, node: Node, *keys: Hashable) -> Any:
        """The value of ``node``, which stands at ``keys`` below the current place."""
        if type(node) is not dict:
            return self.all(node) if type(node) is list else node
        self._path.extend(keys)
        try:
            return self.codecs.by_kind[node["__kind__"]].decode(node, self)
        except StructError as error:
            self._raised.add(type(error))
            self._cause = self._cause or error.__cause__
            self.problems += [
                d
                if d.path.startswith("$")
                else Diagnostic(d.code, d.severity, d.message, format_path(self._path), hint=d.hint)
                for d in error.diagnostics
            ]
            return None
        finally:
            if keys:
                del self._path[-len(keys) :]

    def array(self, node: Mapping[str, Node]) -> np.ndarray[Any, Any]:
        """The array that a node names."""
        return self.arrays[node["name"]]

    def all(self, nodes: Iterable[Node]) -> list[Any]:
        """The values of the nodes of a sequence."""
        values: list[Any] = []
        for index, node in enumerate(nodes):
            values.append(self.decode(node, index) if type(node) in (dict, list) else node)
        return values

    def pairs(self, node: Mapping[str, Node]) -> list[tuple[Any, Any]]:
        """The keys and values of the ``items`` of a dict node."""
        found: list[tuple[Any, Any]] = []
        seen: set[Any] = set()
        problems = len(self.problems)
        for key_node, value_node in node["items"]:
            key = self.decode(key_node) if type(key_node) in (dict, list) else key_node
            try:
                twice = key in seen
                seen.add(key)
            except TypeError:
                raise SerializationError(
                    f"expected hashable dict keys, got a {type(key).__name__}", code="NQX401"
                ) from None
            if twice and len(self.problems) == problems:  # keys that could not be read are all None
                raise SerializationError(
                    f"expected each dict key once, got {brief(key)} twice",
                    code="NQX612",
                    hint="which of the values is meant? leave the others out",
                )
            found.append((key, self.decode(value_node, key) if type(value_node) in (dict, list) else value_node))
        return found

    def fields(self, node: Mapping[str, Node]) -> dict[str, Any]:
        """The values of the ``fields`` of a node."""
        values: dict[str, Any] = {}
        for name, child in node["fields"].items():  # a loop: a comprehension would take the stack of one more call
            values[name] = self.decode(child, FieldName(name))
        return values

    def finish(self) -> None:
        """Raise if anything did not fit.

        Raises:
            SerializationError: With every problem and its path; of the kind that all of them are, if they are of one.
        """
        if self.problems:
            kinds = {kind if issubclass(kind, SerializationError) else SerializationError for kind in self._raised}
            raise (kinds.pop() if len(kinds) == 1 else SerializationError)(self.problems) from self._cause
