"""Codecs of instances of classes: enums, namedtuples, dataclasses, well-known functions.

A reference in a file becomes a class only if that is imported already and of the kind that the node requires, or trusted
by the caller, or described by a schema. Nothing that a file merely names is imported or called.

Example:
    >>> from neuralqx_struct.codecs.nodes import Codecs, Encoder
    >>> import enum
    >>> Encoder(Codecs(CLASS_CODECS)).encode(enum.FlagBoundary.KEEP)
    {'__kind__': 'enum', 'type': 'enum:FlagBoundary', 'name': 'KEEP'}
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np

from neuralqx_struct.codecs.external import EXTERNAL_CODEC, given_value, value_in_like
from neuralqx_struct.codecs.nodes import Codec, Codecs, Decoder, Encoder, unsaveable
from neuralqx_struct.codecs.remedies import remedy_for_code
from neuralqx_struct.errors import (
    Diagnostic,
    Hint,
    Keyword,
    SerializationError,
    Severity,
    UntrustedError,
    did_you_mean,
)
from neuralqx_struct.manifest.kinds import EXTERNAL, KINDS
from neuralqx_struct.matching import unknown_field, without_value
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.references import alias_hint, class_ref, find_class, is_schema_ref

Node = Any
Members = Mapping[str, Node]
Unknown = Literal["error", "warn", "drop"]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Options of a load, as the decoder uses them.

    Attributes:
        trust: Packages whose classes may be imported.
        abstract: Return ``jax.ShapeDtypeStruct`` in place of arrays, and run no hook.
        as_numpy: Return numpy arrays also where JAX arrays were saved.
        copies: Copy numpy arrays, because the caller holds the arrays that are read.
        select: Predicate ``(path, leaf)``: other leaves are None and are not read.
        unknown: Treatment of stored fields that the class lacks: ``error``, ``warn`` or ``drop``.
        fill: Values for fields that were not saved and have no default.
        root: The requested class, which may be a subclass of the stored one.
        build_class: Returns the class of a schema reference, or None.
        target: Returns the sharding of an array, of its path and its ``jax.ShapeDtypeStruct``: its shards are then read
            one by one, each straight to its devices; None for an array that is read as a whole.
        choices: Returns the Enum classes of fields that are saved as text, for a schema reference and its class.
        report: Receives findings about defaults and dropped fields.
        raw: Return the fields of classes as dicts.
        conversions: The dtypes that arrays get, by those that they have.
        like: An object of the wanted structure, which has the values of fields that were not saved; None for none.
    """

    trust: Sequence[str] = ()
    abstract: bool = False
    as_numpy: bool = False
    copies: bool = False
    select: Callable[[tuple[Hashable, ...], Any], bool] | None = None
    unknown: Unknown = "error"
    fill: Mapping[str, Any] = field(default_factory=dict)
    root: type | None = None
    build_class: Callable[[str], type | None] = lambda _ref: None
    target: Callable[[tuple[Hashable, ...], Any], Any] | None = None
    choices: Callable[[str, type], Mapping[str, type[enum.Enum]]] = lambda _ref, _cls: {}
    report: list[Diagnostic] = field(default_factory=list)
    raw: bool = False
    conversions: Mapping[str, str] = field(default_factory=dict)
    like: Any = None

    @property
    def runs_hooks(self) -> bool:
        """False where the leaves are not the saved values."""
        return not self.abstract and self.select is None


class ClassDecoder(Decoder):
    """A decoder with the options of a load."""

    def __init__(
        self, codecs: Codecs, arrays: Mapping[str, np.ndarray[Any, Any]], options: DecodeOptions
    ) -> None:
        super().__init__(codecs, arrays)
        self.options = options
        # Of all classes that were read: names that `fill` may use.
        self.seen_fields: set[str] = set()

    def resolve(self, ref: str, expected: str, fits: Callable[[type], bool]) -> Any:
        """The class of a reference in the file: one that is imported, trusted, or built from a schema.

        Args:
            ref: The reference.
            expected: A description of the class for the message.
            fits: Whether a class is of the kind that the node requires.

        Raises:
            UntrustedError: No known class of that kind has the reference.
        """
        # The documents of this payload take precedence over classes of the same name.
        found = self.options.build_class(ref)
        if found is None:
            found = find_class(ref, trust=(*self.options.trust, "neuralqx_struct.params"))
        if found is not None and fits(found):
            return found
        module = ref.partition(":")[0]
        package = module.partition(".")[0]
        got = "is not imported" if found is None else "is something else"
        trust = Keyword("trust", [package])
        hint: str = Hint(f"import {module} first, or pass ", trust, f"; {alias_hint(ref)}")
        if is_schema_ref(ref):
            hint = "load it through its schema: load_schema(folder).load(path)"
        elif module == "__main__":  # of another program
            hint = f"a script saved it; {alias_hint(ref)}"
        message = f"expected {expected} that is known here, got {ref!r}, which {got}"
        raise UntrustedError(message, code="NQX501", hint=hint)


# ----------------------------------------------------------------------------------------------------------------------
# Namedtuples and dataclasses: values that consist of their fields.

CHANGED = "the class has changed since the payload was written"


def reachable_ref(cls: type) -> str:
    """The reference of a class.

    Raises:
        SerializationError: Readers cannot find the class by it.
    """
    ref = class_ref(cls)
    found = find_class(ref)
    if found is cls:
        return ref
    got = "is not"
    hint = "define the class at the top level of its module, under the name that it has"
    if found is not None:
        got = "is another class by now"
        hint = "it was defined anew, as when a cell runs again: make the value anew too"
    message = f"expected a class that is found under its name, got {ref}, which {got}"
    raise unsaveable(message, hint)


def refuse_code(value: Any) -> None:
    """Raises SerializationError for an object of a library that consists of functions in part."""
    remedy = remedy_for_code(type(value))
    if remedy is not None:
        name = type(value).__qualname__
        message = f"expected a value that can be saved, got a {name}, which is code in part"
        raise unsaveable(message, remedy)


def _is_incidental(cls: type, name: str) -> bool:
    """Returns whether an attribute comes from a cached property or from typing."""
    return name.startswith("__") or isinstance(getattr(cls, name, None), functools.cached_property)


def _encode_fields(value: Any, names: Sequence[str], encoder: Encoder) -> Members:
    cls = type(value)
    refuse_code(value)
    ref = reachable_ref(cls)
    others = [name for name in getattr(value, "__dict__", ()) if name not in names]
    more = ", ".join(name for name in others if not _is_incidental(cls, name))
    if more:
        message = (
            f"expected a {cls.__name__} with its fields alone, got one that has also {more[:200]}"
        )
        hint = "declare them as fields, or register the type with register_pytree_type"
        raise unsaveable(message, hint)
    fields = {}
    for name in names:
        fields[name] = encoder.encode(getattr(value, name), FieldName(name))
    return {"type": ref, "fields": fields}


def _decode_fields(cls: Any, names: Sequence[str], node: Members, decoder: ClassDecoder) -> Any:
    """The values of the fields by name; None if there are problems."""
    decoder.seen_fields.update(names)
    problems = len(decoder.problems)
    stored = dict(node["fields"])
    values: dict[str, Any] = {}
    for name in names:
        held = name in stored
        child = stored.pop(name, None)
        key = FieldName(name)
        given = () if held and not EXTERNAL.matches(child) else given_value(cls, key, decoder)
        if given:
            (values[name],) = given
        elif held:
            values[name] = decoder.decode(child, key)
        else:
            hint = f"give the field a default, pass fill={{{name!r}: ...}}; {_steps(cls)}"
            path = format_path((*decoder.path, key))
            decoder.problems.append(without_value(path, hint))
    for name in stored:
        note_unknown(name, cls, decoder, _steps(cls))
    return values if len(decoder.problems) == problems else None


def _steps(cls: type) -> str:
    return f"steps with `of: {cls.__name__}` (rename_path, add, remove) reach into a pytree"


_SEVERITY: Mapping[Unknown, Severity] = {"error": "error", "warn": "warning", "drop": "info"}


def note_unknown(name: str, cls: type, decoder: ClassDecoder, fix: str) -> None:
    """Adds the finding about a stored field that a class lacks, to the problems or to the report."""
    options = decoder.options
    severity = _SEVERITY[options.unknown]
    path = format_path((*decoder.path, FieldName(name)))
    hint = f"{fix}, or drop it with unknown='drop'"
    found = decoder.problems if severity == "error" else options.report
    found.append(unknown_field(path, name, cls.__name__, hint, severity))


def _is_namedtuple_type(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _decode_named(node: Members, decoder: ClassDecoder) -> Any:
    cls = decoder.resolve(node["type"], "a namedtuple class", _is_namedtuple_type)
    values = _decode_fields(cls, cls._fields, node, decoder)
    if values is None:
        return None
    return tuple.__new__(cls, [values[name] for name in cls._fields])


def _field_names(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def _encode_dataclass(value: Any, encoder: Encoder) -> Members:
    cls = type(value)
    names = _field_names(value)
    if _blank(cls) is None or not all(hasattr(value, name) for name in names):
        got = f"a {cls.__name__}, which derives from a builtin type or has fields without a value"
        message = f"expected a dataclass whose instances consist of their fields, got {got}"
        raise unsaveable(message, "register the type with register_pytree_type")
    return _encode_fields(value, names, encoder)


def _decode_dataclass(node: Members, decoder: ClassDecoder) -> Any:
    cls = decoder.resolve(node["type"], "a dataclass", dataclasses.is_dataclass)
    values = _decode_fields(cls, _field_names(cls), node, decoder)
    if values is None:
        return None
    # Not the constructor: it may convert or refuse values that were valid when they were saved.
    instance = _blank(cls)
    if instance is None:
        expected = "a dataclass whose instances consist of their fields"
        message = f"expected {expected}, got {node['type']}, which derives from a builtin type"
        hint = "register the type with register_pytree_type, and save it again"
        raise SerializationError(message, code="NQX414", hint=hint)
    held = value_in_like(decoder)
    own: Mapping[str, Any] = values
    if held and type(held[0]) is cls:
        own = getattr(held[0], "__dict__", {})
    for name, value in values.items():
        if name in own or not _is_default(cls, name, value):
            object.__setattr__(instance, name, value)
    for name in own.keys() - values.keys():
        if name.startswith("__"):
            object.__setattr__(instance, name, own[name])
    return instance


def _is_default(cls: type, name: str, value: Any) -> bool:
    """True if an instance would have this value from its class alone.

    Equinox tells such a field from one with the same value of its own, where an ``__init__`` sets it in some cases. It also
    sees what ``filter_vmap`` and typing keep beside the fields, such as ``__name__``. So both are as in ``like``.
    """
    default = getattr(cls, name, dataclasses.MISSING)
    plain = type(value) is type(default) and not isinstance(value, (np.ndarray, jax.Array))
    return plain and bool(value == default)


def _blank(cls: type) -> Any:
    """An instance without fields, or None for exceptions, abstract classes and the like."""
    try:
        return object.__new__(cls)
    except TypeError:
        return None


# ----------------------------------------------------------------------------------------------------------------------
# Enums.


def _encode_enum(value: enum.Enum, _: Encoder) -> Members:
    cls = type(value)
    ref = reachable_ref(cls)
    if value.name in cls.__members__:
        return {"type": ref, "name": value.name}
    parts = list(value) if isinstance(value, enum.Flag) else []
    if not isinstance(value, enum.Flag) or _joined(cls, parts) != value:
        message = (
            f"expected members of {cls.__name__}, got {value!r}, which has bits without a name"
        )
        hint = "save its number, flag.value, and make the flag of it with a converter"
        raise unsaveable(message, hint)
    return {"type": ref, "name": "|".join(str(member.name) for member in parts)}


def _joined(cls: Any, members: Sequence[Any]) -> Any:
    return functools.reduce(operator.or_, members, cls(0))


def _decode_enum(node: Members, decoder: ClassDecoder) -> Any:
    cls = decoder.resolve(node["type"], "an Enum class", lambda cls: issubclass(cls, enum.Enum))
    name, members = node["name"], cls.__members__
    if name in members:
        return members[name]
    parts = name.split("|") if name else []
    if issubclass(cls, enum.Flag) and all(part in members for part in parts):
        return _joined(cls, [members[part] for part in parts])
    message = f"expected a member of {cls.__name__}, got {name[:60]!r}"
    raise SerializationError(message, code="NQX421", hint=did_you_mean(name, members))


# ----------------------------------------------------------------------------------------------------------------------
# References to functions and classes that calling is safe for: they compute a value and do nothing else. No others are
# saved, because a file must not choose among all that is imported.

_JAX_FUNCTIONS = [
    "bfloat16",
    "tanh",
    "sin",
    "cos",
    "exp",
    "log",
    "sqrt",
    "square",
    "abs",
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "sum",
    "mean",
]


@functools.cache
def _references() -> Mapping[str, Any]:
    """The functions and classes that files may name, by their references."""
    scalars = [kind.__name__ for kind in np.sctypeDict.values()]
    activations = [name for name in vars(jax.nn) if callable(vars(jax.nn)[name]) and name[0] != "_"]
    plain = [
        "bool",
        "int",
        "float",
        "complex",
        "str",
        "bytes",
        "list",
        "tuple",
        "dict",
        "set",
        "frozenset",
    ]
    names: dict[Any, list[str]] = {
        builtins: plain,
        np: scalars,
        jax.nn: sorted(activations),
        jax.numpy: [*scalars, *_JAX_FUNCTIONS],
    }
    found = {}
    for module, wanted in names.items():
        for name in wanted:
            if name in vars(module):
                found[f"{module.__name__}:{name}"] = getattr(module, name)
    return found


@functools.cache
def _names() -> Mapping[int, str]:
    return {id(value): ref for ref, value in _references().items()}


def _decode_reference(node: Members, _: ClassDecoder) -> Any:
    name = node["name"]
    if name in _references():
        return _references()[name]
    message = f"expected one of the functions and classes that files may name, got {name[:100]!r}"
    hint = "leave the field out with serialize=False, and give its value with fill="
    raise UntrustedError(message, code="NQX501", hint=hint)


def raw_fields(node: Members, decoder: Decoder) -> Any:
    """The stored fields of an instance, without its class."""
    return decoder.fields(node)


def _raw_name(node: Members, _: Decoder) -> Any:
    return node["name"]


CLASS_CODECS = (
    Codec(
        KINDS["pytree-dataclass"],
        (),
        _encode_dataclass,
        _decode_dataclass,
        lambda value: dataclasses.is_dataclass(value) and not isinstance(value, type),
        raw_fields,
    ),
    Codec(
        KINDS["namedtuple"],
        (),
        lambda value, encoder: _encode_fields(value, type(value)._fields, encoder),
        _decode_named,
        lambda value: _is_namedtuple_type(type(value)),
        raw_fields,
    ),
    Codec(
        KINDS["enum"],
        (),
        _encode_enum,
        _decode_enum,
        lambda value: isinstance(value, enum.Enum),
        _raw_name,
    ),
    EXTERNAL_CODEC,
    Codec(
        KINDS["reference"],
        (),
        lambda value, _: {"name": _names()[id(value)]},
        _decode_reference,
        lambda value: callable(value) and id(value) in _names(),
        _raw_name,
    ),
)
