"""The other direction of the compiler: Struct classes -> schema documents -> YAML.

Owns :func:`schema_of`, which reads annotations, field arguments, defaults and docstrings, and :func:`dump_schema`, the
inverse of :func:`~neuralqx_struct.load_schema`. Python can say more than the schema language: what it cannot say becomes
``pytree`` or is left out, and each such place is told in the report, as NQX134. What the language means is ``schema/``.

Example:
    >>> from neuralqx_struct.struct import Struct
    >>> class Sampler(Struct):
    ...     n_chains: int = 16
    ...     sigma: float | None = None
    >>> print(dump_schema(schema_of(Sampler, schema="lab.sampler")), end="")
    # yaml-language-server: $schema=https://neuralqx.github.io/neuralqx-struct/schemas/struct-schema/1.json
    language: "1"
    schema: lab.sampler
    version: 1
    root: Sampler
    structs:
      Sampler:
        fields:
          n_chains: {type: int, default: 16}
          sigma: {type: float | null, default: null}
"""

from __future__ import annotations

import enum
import inspect
import itertools
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import jax
import numpy as np

from neuralqx_struct.compiler import Schema, classes_of
from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.fieldspec import MISSING, FieldKind, FieldSpec, is_struct
from neuralqx_struct.printing import brief
from neuralqx_struct.schema.checks import CHECKS, Finding
from neuralqx_struct.schema.defaults import VALUE_CHECKS
from neuralqx_struct.schema.expressions import parse as parse_expression
from neuralqx_struct.schema.loader import dump_yaml
from neuralqx_struct.schema.model import LANGUAGE_SCHEMA_ID, Document
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.types import (
    DTYPES,
    TYPE_NAMES,
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
    format_type,
)

__all__ = ["described", "dump_schema", "schema_of"]

# ---------------------------------------------------------------------------------------------------------------------
# Documents -> text.


def dump_schema(what: Document | Schema | type) -> str:
    """A schema as YAML text that :func:`~neuralqx_struct.load_schema` reads back to an equal document.

    Args:
        what: A document, one version of a schema, or a Struct class.

    Raises:
        TypeError: It is something else.
        SchemaError: A value in it has no YAML text.

    Example:
        >>> from neuralqx_struct.compiler import load_schema
        >>> schema = load_schema("schemas/vmc_state")
        >>> load_schema(dump_schema(schema)).document == schema.document
        True
    """
    if isinstance(what, Document):
        document = what
    elif isinstance(what, Schema):
        document = what.document
    elif isinstance(what, type) and is_struct(what):
        document = schema_of(what)
    else:
        raise TypeError(f"dump_schema(): expected a Document, a Schema or a Struct class, got {brief(what)}")
    return f"# yaml-language-server: $schema={LANGUAGE_SCHEMA_ID}\n{dump_yaml(_shortened(document.to_data()))}"


def _shortened(data: dict[str, Any]) -> dict[str, Any]:
    """The same document with the shorthands of fields and enums, which mean the same."""
    for struct in data["structs"].values():
        struct["fields"] = {name: _short(declared, "type") for name, declared in struct["fields"].items()}
    if "enums" in data:
        data["enums"] = {name: _short(declared, "members") for name, declared in data["enums"].items()}
    return data


def _short(declared: dict[str, Any], only: str) -> Any:
    return declared[only] if declared.keys() == {only} and declared[only] is not None else declared


# ---------------------------------------------------------------------------------------------------------------------
# Classes -> documents.


def schema_of(
    cls: type, *, schema: str | None = None, version: int = 1, report: list[Diagnostic] | None = None
) -> Document:
    """The schema document of a Struct class, with every Struct and Enum that its fields name.

    For a class that was built from a schema it is that schema's document.

    Args:
        cls: The class, which becomes the root.
        schema: Identity; by default from the class's module and name.
        version: Version.
        report: A list that gets an NQX134 for everything that the schema language cannot say.

    Raises:
        TypeError: ``cls`` is not a Struct class.
        SchemaError: The document is not valid, such as for a name with letters outside of ASCII; with every problem.

    Example:
        >>> from neuralqx_struct.struct import Struct
        >>> class Layer(Struct):
        ...     w: jax.Array
        ...     act: typing.Literal["relu", "tanh"] = "relu"
        >>> found = []
        >>> schema_of(Layer, report=found).structs["Layer"].fields["act"].text
        "literal['relu', 'tanh']"
        >>> found[0].path
        'Layer.w'
    """
    if not isinstance(cls, type) or not is_struct(cls):
        raise TypeError(f"schema_of(): expected a Struct class, got {brief(cls)}")
    own = _own_document(cls)
    return own if own is not None else _written(cls, schema, version, report)[0]


def described(cls: type) -> tuple[Document, str, Mapping[str, type]]:
    """The document of a Struct class, the name of the class in it, and the class behind each name there."""
    own = _own_document(cls)
    if own is None:
        document, classes = _written(cls, None, 1, None)
        return document, document.root, classes
    compiled: Any = next(base for base in cls.__mro__ if "__nqx_document__" in vars(base))
    return own, compiled.__name__, {**classes_of(compiled.__nqx_series__, own.version), compiled.__name__: cls}


def _written(
    cls: type, schema: str | None, version: int, report: list[Diagnostic] | None
) -> tuple[Document, dict[str, type]]:
    writing = _Writing()
    root = writing.name_of(cls)
    data = {
        "language": "1",
        "schema": schema or _identity(cls),
        "version": version,
        "root": root,
        **({"enums": writing.enums} if writing.enums else {}),
        "structs": writing.structs,
    }
    document = writing.settled(data, f"schema_of({cls.__name__})")
    if report is not None:
        report += writing.report
    return document, writing.classes


def _own_document(cls: Any) -> Document | None:
    """The document from which a class was compiled; subclasses in Python share it as long as they add no field."""
    for base in cls.__mro__:
        document: Document | None = base.__dict__.get("__nqx_document__")
        if document is not None:
            return document if base.__nqx_fields__.keys() == cls.__nqx_fields__.keys() else None
    return None


def _identity(cls: type) -> str:
    """``lab.model:VMCState`` as ``lab.model.vmc_state``."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()
    parts = (re.sub(r"\W", "_", part, flags=re.ASCII) for part in (*cls.__module__.split("."), snake))
    return ".".join(part if re.match(r"[A-Za-z_]", part) else f"_{part}" for part in parts)


class _Writing:
    """One walk over classes; collects what becomes of them, and what the language cannot say."""

    def __init__(self) -> None:
        self.structs: dict[str, dict[str, Any]] = {}
        self.enums: dict[str, dict[str, Any]] = {}
        self.report: list[Diagnostic] = []
        self._names: dict[type, str] = {}
        self._where = ""

    def note(self, message: str, hint: str | None = None) -> None:
        self.report.append(Diagnostic("NQX134", "info", message, path=self._where, hint=hint))

    def name_of(self, cls: type) -> str:
        """The name of a struct or enum in the document; the first time, with its declaration."""
        if cls not in self._names:
            taken = {*self._names.values(), *TYPE_NAMES}
            names = itertools.chain([cls.__name__], (f"{cls.__name__}{n}" for n in itertools.count(2)))
            name = self._names[cls] = next(name for name in names if name not in taken)
            if issubclass(cls, enum.Enum):
                self.enums[name] = {"members": [member.name for member in cls], **_doc(cls)}
            else:
                declaration = self.structs[name] = {**_doc(cls), "fields": {}}
                outer = self._where
                for spec in _specs(cls).values():
                    self._where = f"{cls.__name__}.{spec.name}"
                    if spec.is_derived:
                        self.note(
                            "left out: a field that Python code derives", "say it in the schema: derived: size(w)"
                        )
                    else:
                        declaration["fields"][spec.name] = self.field(cls, spec)
                self._where = outer
        return self._names[cls]

    def field(self, cls: type, spec: FieldSpec) -> dict[str, Any]:
        data: dict[str, Any] = {}
        if spec.kind is not FieldKind.OPAQUE or spec.should_serialize:
            data["type"] = format_type(self.type(_annotation(cls, spec)))
        if spec.kind is not FieldKind.NODE:
            data["kind"] = spec.kind.value
        if spec.has_default:
            default = _plain_default(spec)
            if default is MISSING:
                self.note(
                    "left out: a default that a schema cannot write", "every call of the constructor must give it"
                )
            else:
                data["default"] = default
        if spec.serialize is not None:
            data["serialize"] = spec.serialize
        if spec.reset and "default" in data:
            data["reset"] = True
        hooks = [*filter(None, [spec.converter]), *spec.validators]
        if hooks:
            names = ", ".join(getattr(hook, "__name__", repr(hook)) for hook in hooks)
            self.note(f"left out: what Python code checks or converts ({names})", "register it with register_hook")
        return data | _described(spec)

    @property
    def classes(self) -> dict[str, type]:
        """The classes by their names in the document."""
        return {name: cls for cls, name in self._names.items()}

    # --- types -----------------------------------------------------------------------------------------------------

    def type(self, hint: Any) -> Type:
        """The type that an annotation says, or pytree, with a note unless it means just that."""
        found = self._type(hint)
        if found is not None:
            return found
        if hint not in (Any, object) and not isinstance(hint, typing.TypeVar):
            shown = hint.__qualname__ if isinstance(hint, type) else str(hint)
            advice = "say dtype and shape, as in jaxtyping's Float32[Array, 'n d']" if _is_array_like(hint) else None
            self.note(f"expected a type that the schema language has, got {shown}, which becomes pytree", advice)
        return PyTree()

    def _type(self, hint: Any) -> Type | None:
        if hint is None or hint is types.NoneType:
            return Null()
        if hasattr(hint, "dtypes") and hasattr(hint, "dim_str"):
            return _shaped(hint)
        if hasattr(hint, "__supertype__"):  # NewType
            return self.type(hint.__supertype__)
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if hasattr(hint, "__value__"):  # `type X[T] = ...` of Python 3.12, as numpy 2.5 and later have NDArray
            return self.type(hint.__value__[args] if args else hint.__value__)
        if origin in _GENERIC:
            return _GENERIC[origin](self, args)
        bare = hint if origin is None else origin
        if not isinstance(bare, type):
            return None
        if bare in _PLAIN:
            return _PLAIN[bare]
        if issubclass(bare, PurePath):
            return Scalar("path")
        if issubclass(bare, enum.Enum) and not issubclass(bare, enum.Flag):
            return Named(self.name_of(bare))
        # A class of another schema has another identity; naming it here would give it a second one.
        return Named(self.name_of(bare)) if is_struct(bare) and _own_document(bare) is None else None

    # --- what only the whole document shows --------------------------------------------------------------------------

    def settled(self, data: dict[str, Any], name: str) -> Document:
        """The document; types and defaults that do not stand the checks of the language give way.

        Raises:
            SchemaError: Other checks fail.
        """
        document = document_from_data(data, name)
        wrong = list(_errors(document))
        if wrong:
            for finding in wrong:
                self._give_way(finding)
            document = document_from_data(data, name)
            wrong = list(_errors(document))
        if wrong:
            raise SchemaError(Diagnostic(f.code, "error", f.message, file=name, hint=f.hint) for f in wrong)
        return document

    def _give_way(self, finding: Finding) -> None:
        match finding.path:
            case ("structs", str(struct), "fields", str(field), "type" | "default" as member, *_):
                declared = self.structs[struct]["fields"][field]
                self._where = f"{struct}.{field}"
                if member == "default":
                    declared.pop("default", None)
                    declared.pop("reset", None)
                    self.note(f"left out: a default\n{finding.message}", finding.hint)
                else:
                    declared["type"] = "pytree"
                    self.note(f"expected a type that the schema language has, got pytree instead\n{finding.message}")
            case _:
                pass


def _union(writing: _Writing, args: tuple[Any, ...]) -> Type:
    options: dict[Type, None] = {}
    for option in map(writing.type, args):
        options |= dict.fromkeys(option.options if isinstance(option, Union) else (option,))
    return PyTree() if PyTree() in options else Union(tuple(options)) if len(options) > 1 else next(iter(options))


def _literal(_: _Writing, args: tuple[Any, ...]) -> Type | None:
    values = tuple(value for value in args if value is not None)
    if not all(type(value) in (str, int, bool, float) for value in values):
        return None
    options: list[Type] = [*([LiteralOf(values)] if values else []), *([Null()] if None in args else [])]
    return Union(tuple(options)) if len(options) > 1 else options[0]


def _tuple(writing: _Writing, args: tuple[Any, ...]) -> Type:
    variadic = len(args) == 2 and args[1] is ...
    return TupleOf(tuple(map(writing.type, args[:1] if variadic else args)), variadic)


def _dict(writing: _Writing, args: tuple[Any, ...]) -> Type | None:
    return DictOf(writing.type(args[1])) if args[0] is str else None


def _numpy_array(_: _Writing, args: tuple[Any, ...]) -> Type | None:
    """``np.ndarray[Any, np.dtype[np.float32]]``, which ``numpy.typing.NDArray[np.float32]`` stands for."""
    scalar = next(iter(typing.get_args(args[1])), None)
    name = getattr(scalar, "__name__", "").removesuffix("_")
    return Array(name) if name in DTYPES else None


_GENERIC: Mapping[Any, Callable[[_Writing, tuple[Any, ...]], Type | None]] = {
    typing.Annotated: lambda writing, args: writing.type(args[0]),
    typing.Literal: _literal,
    typing.Union: _union,
    types.UnionType: _union,
    list: lambda writing, args: ListOf(writing.type(args[0])),
    tuple: _tuple,
    dict: _dict,
    np.ndarray: _numpy_array,
}
_PLAIN: Mapping[type, Type] = {
    **{cls: Scalar(cls.__name__) for cls in (bool, int, float, complex, str, bytes)},
    np.dtype: Scalar("dtype"),
    list: ListOf(PyTree()),
    tuple: TupleOf((PyTree(),), variadic=True),
}


def _specs(cls: Any) -> Mapping[str, FieldSpec]:
    specs: Mapping[str, FieldSpec] = cls.__nqx_fields__
    return specs


def _annotation(cls: type, spec: FieldSpec) -> Any:
    """The annotation of a field, evaluated where it was written; as it is where that fails."""
    owner = next((base for base in cls.__mro__ if spec.name in base.__dict__.get("__nqx_own__", ())), cls)
    holder = type("_", (), {"__annotations__": {spec.name: spec.type}, "__module__": owner.__module__})
    names = {owner.__name__: owner, cls.__name__: cls}
    try:
        return typing.get_type_hints(holder, localns=names, include_extras=True)[spec.name]
    except (NameError, AttributeError, SyntaxError, TypeError):  # names that only type checkers import, and the like
        return spec.type


def _is_array_like(hint: Any) -> bool:
    bare = typing.get_origin(hint) or hint
    return isinstance(bare, type) and issubclass(bare, (jax.Array, np.ndarray))


def _shaped(hint: Any) -> Type | None:
    """A type of jaxtyping, or of whatever describes arrays in its way: by ``dtypes`` and ``dim_str``."""
    dtypes = tuple(hint.dtypes) if isinstance(hint.dtypes, (list, tuple)) else ()
    extents = [_extent(axis) for axis in str(hint.dim_str).split()]
    if len(dtypes) != 1 or None in extents:
        return None
    shape = tuple(extent for extent in extents if extent is not None)
    if dtypes[0] == "prng_key":
        return Key(None, shape)
    return Array(dtypes[0], shape) if dtypes[0] in DTYPES else None


def _extent(axis: str) -> Extent | None:
    """One axis in jaxtyping's notation: ``n``, ``3``, ``n+1``, ``_``, ``rows=3``, ``*batch``, ``#n``, ``...``."""
    if axis == "..." or axis.startswith(("*", "#*", "?*")):
        return ...
    if axis.startswith(("_", "#", "?")):
        return parse_expression("_")
    try:
        return parse_expression(axis.rpartition("=")[2])
    except SchemaError:
        return None


def _plain_default(spec: FieldSpec) -> Any:
    """The default as a file can hold it, or MISSING; code of the user does not run for it."""
    if spec.default_factory is MISSING:
        return _plain(spec.default)
    makers: tuple[Any, ...] = (dict, list)
    return spec.default_factory() if spec.default_factory in makers else MISSING


def _plain(value: Any) -> Any:
    """A value as a file can hold it, or MISSING."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else MISSING
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, PurePath):
        return str(value)
    if type(value) in (list, tuple):
        items = [_plain(item) for item in value]
        return MISSING if MISSING in items else items
    if type(value) is dict and all(type(key) is str for key in value):
        members = {key: _plain(item) for key, item in value.items()}
        return MISSING if MISSING in members.values() else members
    return MISSING


def _described(spec: FieldSpec) -> dict[str, Any]:
    """What a field says for people and tools."""
    metadata = spec.metadata
    said = {
        "doc": spec.doc,
        "unit": metadata.get("unit"),
        "tags": sorted(spec.tags),
        "aliases": list(spec.aliases),
        "deprecated": metadata.get("deprecated"),
        "examples": _plain(list(metadata.get("examples", ()))),
    }
    return {name: value for name, value in said.items() if value and value is not MISSING}


def _doc(cls: type) -> dict[str, str]:
    """The docstring that somebody wrote, not one that was generated or inherited."""
    written = cls.__dict__.get("__doc__")
    if not isinstance(written, str) or written.startswith(f"{cls.__name__}(") or written == "An enumeration.":
        return {}
    text = inspect.cleandoc(written)
    return {"doc": text} if text else {}


def _errors(document: Document) -> Iterator[Finding]:
    checks: Sequence[Callable[[Document], Iterator[Finding]]] = (*CHECKS, *VALUE_CHECKS)
    return (finding for check in checks for finding in check(document) if finding.severity == "error")
