"""Conditions: the straight Python that shows a value of a declared type to be sound.

Owns :class:`Code`, in which the source of a proof is put together, and one condition for each type: an expression that
is true of sound values only. It may be false of a sound one, and an error in it means no more than that: what it leaves
open the walk of the schema decides (:mod:`.schema.conform`), which also has the words for what is wrong. Whole
instances are ``soundness.py``'s, the agreement of sizes is ``agreement.py``'s.

Only names, numbers, operators and places reach the source; every other value of a schema comes in through the
namespace, as do those of the generated constructor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from neuralqx_struct.agreement import Reading, UnprovableError, agreement
from neuralqx_struct.payload import dtype_named
from neuralqx_struct.schema.bounds import scalar_misses
from neuralqx_struct.schema.claims import ANY
from neuralqx_struct.schema.expressions import Expression, parse
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.types import (
    DTYPES,
    Array,
    DictOf,
    Extent,
    Key,
    ListOf,
    LiteralOf,
    Named,
    Null,
    PyTree,
    Scalar,
    TupleOf,
    Type,
    Union,
)

__all__ = ["ARRAYS", "Code", "Inside", "dtype_name", "field_condition"]

# ---------------------------------------------------------------------------------------------------------------------
# What the generated source calls.

ARRAYS: set[type] = set()  #: classes of JAX arrays met so far, tracers too: to ask a class whether it is one takes long
_IMPLEMENTATIONS: dict[Any, str] = {}  # of random keys, by dtype


class _Nothing:
    """Stands for the dtype and shape of a value that is no array."""

    dtype = ""
    shape = ()


def _seen(value: Any) -> Any:
    """What has the dtype and the shape of a value whose class was not met before as one of JAX's arrays."""
    if isinstance(value, jax.Array):
        ARRAYS.add(type(value))
        return value.aval
    return value if isinstance(value, (np.ndarray, np.generic)) else _Nothing


@functools.lru_cache(maxsize=256)
def dtype_name(dtype: Any) -> str:
    """The name of a dtype, which numpy takes long to say."""
    return str(dtype)


def _number(value: Any, families: tuple[str, ...]) -> bool:
    """True for arrays without axes that stand for a number, which jit makes of Python's."""
    seen = value.aval if type(value) in ARRAYS else _seen(value)
    if seen.shape != () or not isinstance(seen.dtype, np.dtype):
        return False
    known = DTYPES.get(dtype_name(seen.dtype))
    return known is not None and known.family in families


def _keys(value: Any, impl: str | None) -> Any:
    """What has the shape of random keys of an implementation; None for every other value."""
    seen = value.aval if type(value) in ARRAYS else _seen(value)
    if seen is value or seen is _Nothing or isinstance(seen.dtype, np.dtype):
        return None
    if seen.dtype not in _IMPLEMENTATIONS and jax.numpy.issubdtype(seen.dtype, jax.dtypes.prng_key):
        _IMPLEMENTATIONS[seen.dtype] = str(jax.random.key_impl(value))
    found = _IMPLEMENTATIONS.get(seen.dtype)
    return seen if found is not None and impl in (None, found) else None


def _all(prove: Callable[[Any], Any], items: Iterable[Any]) -> Any:
    """The sizes that all items show alike, () if there is no item; None unless all are sound and agree."""
    sizes: Any = ()
    for item in items:
        found = prove(item)
        if found is None or (sizes and found != sizes):
            return None
        sizes = found
    return sizes


_CALLED: Mapping[str, Any] = {
    "_nqx_type": type,
    "_nqx_len": len,
    "_nqx_isinstance": isinstance,
    "_nqx_map": map,
    "_nqx_arrays": ARRAYS,
    "_nqx_seen": _seen,
    "_nqx_number": _number,
    "_nqx_keys_of": _keys,
    "_nqx_all": _all,
    "_nqx_misses": scalar_misses,
}


# ---------------------------------------------------------------------------------------------------------------------
# The source of one proof.


class Inside(Protocol):
    """The proof of a struct inside another one."""

    names: tuple[str, ...]  # the sizes that it gives
    classes: set[type]  # those whose instances it was seen to know

    def admits(self, value: Any) -> bool:
        """Whether the proof knows the class of the value."""

    @property
    def prove(self) -> Callable[[Any], Any]:
        """Takes the pair of an instance; the sizes if it is sound, else None."""


class Code:
    """A proof in the making.

    Args:
        document: The schema.
        inside: Gives the proof of a struct that may be inside, by the document that declares it and its name there.

    Attributes:
        namespace: The objects that the source names.
        readings: The sizes that the values show.
    """

    def __init__(self, document: Document, inside: Callable[[Document, str, bool], Inside]) -> None:
        self.document = document
        self.inside = inside
        self.namespace: dict[str, Any] = {**_CALLED}
        self.readings: list[Reading] = []
        self._locals = 0

    def hold(self, role: str, value: Any) -> str:
        """A name for an object."""
        name = f"_nqx_{role}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def local(self, role: str) -> str:
        """A name for something that the source computes."""
        self._locals += 1
        return f"_nqx_{role}{self._locals}"

    def function(self, argument: str, terms: Iterable[str], sizes: Iterable[str], unpack: str = "") -> Any:
        """A function that gives the sizes where all terms are true, else None."""
        result = f"({''.join(f'{size}, ' for size in sizes)})"
        source = f"def prove({argument}):\n    {unpack}\n    return {result} if {' and '.join(terms) or True} else None"
        made: dict[str, Any] = {}
        exec(compile(source, "<generated check of a schema>", "exec"), self.namespace, made)  # noqa: S102
        return made["prove"]


class _Place(NamedTuple):
    """Where the source finds a value."""

    text: str
    guard: str = ""  # source that is true where the value is there at all; empty if it always is
    field: FieldDeclaration | None = None  # if the value is that of a whole field

    def where(self, condition: str) -> _Place:
        return self._replace(guard=f"{self.guard} and {condition}" if self.guard else condition)


def field_condition(code: Code, field: FieldDeclaration, place: str | None) -> str:
    """The condition of a field.

    Args:
        code: The proof that it becomes a part of.
        field: The declaration.
        place: Where the source finds the value; None if it does not.

    Returns:
        The condition; empty if nothing can be wrong with the value.

    Raises:
        UnprovableError: There is no straight code for such a field.
    """
    declared = field.declared
    options = {*declared.options} if isinstance(declared, Union) else {declared}
    if field.type is None or (PyTree() in options and options <= {PyTree(), Null()}):
        return ""
    if place is None:
        raise UnprovableError("a field that is in no pair")
    return _condition(code, declared, _Place(place, "", field))


# ---------------------------------------------------------------------------------------------------------------------
# One row per type: (code, declared, place).

_Row = Callable[[Code, Any, _Place], str]


def _condition(code: Code, declared: Type, x: _Place) -> str:
    if type(declared) not in _CONDITIONS:
        raise UnprovableError(str(declared))
    return _CONDITIONS[type(declared)](code, declared, x)


#: Which classes stand for a scalar, and which families of dtypes of arrays without axes.
_PYTHON: Mapping[str, tuple[tuple[type, ...], tuple[str, ...]]] = {
    "bool": ((bool,), ("bool",)),
    "int": ((int,), ("integer", "unsigned")),
    "float": ((float, int), ("floating",)),
    "complex": ((complex, float, int), ("complex",)),
    "str": ((str,), ()),
    "bytes": ((bytes,), ()),
}
_OTHERS: Mapping[str, type] = {"path": Path, "dtype": np.dtype}
_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _scalar(code: Code, declared: Scalar, x: _Place) -> str:
    if declared.name in _OTHERS:
        kind = code.hold("kind", _OTHERS[declared.name])
        return _with_bounds(code, f"_nqx_isinstance({x.text}, {kind})", x, None)
    kinds, families = _PYTHON[declared.name]
    one = f"_nqx_type({x.text}) is {code.hold(declared.name, kinds[0])}"
    term = one if len(kinds) == 1 else f"_nqx_type({x.text}) in {code.hold(declared.name, frozenset(kinds))}"
    term = _with_bounds(code, term, x, kinds[0])
    return f"({term} or _nqx_number({x.text}, {code.hold('families', families)}))" if families else term


def _with_bounds(code: Code, term: str, x: _Place, kind: type | None) -> str:
    """The condition with what the field demands of a scalar besides its type."""
    field = x.field
    if field is None:
        return term
    terms = [term]
    rare = [field.multiple_of, field.pattern, field.choices]
    if kind in (int, float, bool):
        bounds = [(symbol, getattr(field, name)) for name, symbol in _BOUNDS.items()]
        terms += [f"{x.text} {symbol} {code.hold('bound', bound)}" for symbol, bound in bounds if bound is not None]
        if field.finite:
            terms.append(f"{code.hold('least', -math.inf)} < {x.text} < {code.hold('most', math.inf)}")
    elif kind in (str, bytes):
        terms += _lengths(x)
    else:
        rare += [*(getattr(field, name) for name in _BOUNDS), field.min_length, field.max_length, field.finite or None]
    if any(each is not None for each in rare):
        terms.append(f"not _nqx_misses({code.hold('field', field)}, {x.text})")
    return f"({' and '.join(terms)})" if len(terms) > 1 else term


def _lengths(x: _Place) -> list[str]:
    least, most = (x.field.min_length, x.field.max_length) if x.field else (None, None)
    return [f"_nqx_len({x.text}) >= {least}"] * bool(least) + [f"_nqx_len({x.text}) <= {most}"] * (most is not None)


def _literal(code: Code, declared: LiteralOf, x: _Place) -> str:
    values = code.hold("values", frozenset((type(value), value) for value in declared.values))
    return _with_bounds(code, f"(_nqx_type({x.text}), {x.text}) in {values}", x, None)


def _array(code: Code, declared: Array, x: _Place) -> str:
    seen, dtype = code.local("seen"), code.hold(declared.dtype, dtype_named(declared.dtype))
    aval = f"({seen} := {x.text}.aval if _nqx_type({x.text}) in _nqx_arrays else _nqx_seen({x.text}))"
    # Nearly always the two are one object, but not where pickles made one, nor in what jit has kept of such an array.
    term = f"({aval}.dtype is {dtype} or {seen}.dtype == {dtype})"
    return " and ".join([term, *_shape(code, declared.shape, f"{seen}.shape", x.guard)])


def _random_key(code: Code, declared: Key, x: _Place) -> str:
    seen = code.local("seen")
    term = f"({seen} := _nqx_keys_of({x.text}, {code.hold('impl', declared.impl)})) is not None"
    return " and ".join([term, *_shape(code, declared.shape, f"{seen}.shape", x.guard)])


def _shape(code: Code, extents: tuple[Extent, ...], text: str, guard: str) -> list[str]:
    """The condition of the number of axes; their sizes are read."""
    dots = [place for place, extent in enumerate(extents) if extent is ...]
    if not extents:
        return [f"{text} == ()"]
    if extents == (...,):
        return []
    count = len(extents)
    head, tail = (dots[0], dots[-1] + 1) if dots else (count, count)
    shape = code.local("shape")
    sized = [*enumerate(extents[:head]), *((place - count, extents[place]) for place in range(tail, count))]
    code.readings += [Reading(f"{shape}[{place}]", e, guard) for place, e in sized if isinstance(e, Expression)]
    return [f"_nqx_len({shape} := {text}) {'>=' if dots else '=='} {count - len(dots)}"]


def _list(code: Code, declared: ListOf, x: _Place) -> str:
    kind = f"_nqx_type({x.text}) is {code.hold('list', list)}"
    return " and ".join([kind, *_lengths(x), _items(code, declared.item, x.text)])


def _dict(code: Code, declared: DictOf, x: _Place) -> str:
    kind = f"_nqx_type({x.text}) is {code.hold('dict', dict)}"
    texts = f"{code.hold('texts', frozenset({str}))}.issuperset(_nqx_map(_nqx_type, {x.text}))"
    return " and ".join([kind, texts, *_lengths(x), _items(code, declared.value, f"{x.text}.values()")])


def _tuple(code: Code, declared: TupleOf, x: _Place) -> str:
    terms = [f"_nqx_type({x.text}) is {code.hold('tuple', tuple)}", *_lengths(x)]
    if declared.variadic:
        return " and ".join([*terms, _items(code, declared.items[0], x.text)])
    terms.append(f"_nqx_len({x.text}) == {len(declared.items)}")
    terms += [_condition(code, t, _Place(f"{x.text}[{place}]", x.guard)) for place, t in enumerate(declared.items)]
    return " and ".join(terms)


def _items(code: Code, declared: Type, text: str) -> str:
    """The condition of any number of values of one type; the sizes that all of them show are read."""
    if isinstance(declared, Scalar) and declared.name in _PYTHON:
        kinds = frozenset(_PYTHON[declared.name][0])
        return f"{code.hold(declared.name, kinds)}.issuperset(_nqx_map(_nqx_type, {text}))"
    inner = Code(code.document, code.inside)
    term = _condition(inner, declared, _Place("item"))
    made = agreement(inner.readings)
    names = sorted({name for reading in inner.readings for name in reading.extent.names} - {ANY})
    if not made.sizes.keys() >= {*names}:
        raise UnprovableError("a size that no item shows")
    prove = code.hold("each", inner.function("item", [term, *made.terms], [made.sizes[name] for name in names]))
    all_of = code.local("all")
    code.readings += [Reading(f"{all_of}[{place}]", parse(name), all_of) for place, name in enumerate(names)]
    return f"({all_of} := _nqx_all({prove}, {text})) is not None"


def _union(code: Code, declared: Union, x: _Place) -> str:
    simple = [option for option in declared.options if _is_simple(code.document, option)]
    others = [option for option in declared.options if option not in simple]
    # The first option that may be meant decides alone, so of those that are looked into there must not be two.
    if len(others) > 1:
        raise UnprovableError(str(declared))
    terms = [_condition(code, option, x) for option in simple]
    if others and simple == [Null()]:
        terms.append(_condition(code, others[0], x.where(f"{x.text} is not None")))
    elif others:
        taken = code.local("taken")
        terms.insert(0, f"({taken} := ({_condition(code, others[0], x.where(taken))}))")
    return f"({' or '.join(terms)})"


def _is_simple(document: Document, option: Type) -> bool:
    """True for a type that a look at the value decides."""
    is_enum = isinstance(option, Named) and document.members_of(option.name) is not None
    return is_enum or isinstance(option, (Scalar, Null, LiteralOf))


def _named(code: Code, declared: Named, x: _Place) -> str:
    owner, name = code.document.place_of(declared.name)
    if name in owner.enums:
        members = code.hold("members", frozenset(owner.enums[name].members))
        term = f"(_nqx_type({x.text}) is {code.hold('str', str)} and {x.text} in {members})"
        return _with_bounds(code, term, x, None)
    if name not in owner.structs:
        raise UnprovableError(name)
    inside = code.inside(owner, name, owner is not code.document)
    struct, sizes = code.hold("struct", inside), code.local("sizes")
    extents = dict(zip(owner.structs[name].params, declared.args, strict=False))
    code.readings += [
        Reading(f"{sizes}[{place}]", extents[each] if each in extents else parse(each), x.guard)
        for place, each in enumerate(inside.names)
    ]
    known = f"(_nqx_type({x.text}) in {code.hold('classes', inside.classes)} or {struct}.admits({x.text}))"
    return f"{known} and ({sizes} := {struct}.prove({x.text}._nqx_pair)) is not None"


_CONDITIONS: Mapping[type, _Row] = {
    Scalar: _scalar,
    Null: lambda _code, _declared, x: f"{x.text} is None",
    LiteralOf: _literal,
    Array: _array,
    Key: _random_key,
    ListOf: _list,
    DictOf: _dict,
    TupleOf: _tuple,
    Union: _union,
    Named: _named,
}
