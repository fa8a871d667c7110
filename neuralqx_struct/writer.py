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
import itertools
import threading
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, cast

import jax
import numpy as np

from neuralqx_struct.compiler import Schema, classes_of
from neuralqx_struct.declarations import described_field, documented_fields, identity_of, plain_default, written_doc
from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.fieldspec import MISSING, FieldKind, FieldSpec, is_struct
from neuralqx_struct.params import Param, Params
from neuralqx_struct.printing import brief
from neuralqx_struct.registry import stored_class
from neuralqx_struct.schema.checks import CHECKS
from neuralqx_struct.schema.defaults import VALUE_CHECKS
from neuralqx_struct.schema.expressions import parse as parse_expression
from neuralqx_struct.schema.findings import Finding
from neuralqx_struct.schema.fingerprint import payload_fingerprint
from neuralqx_struct.schema.loader import dump_yaml
from neuralqx_struct.schema.migration import Migration
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
from neuralqx_struct.schema.uses import among, link
from neuralqx_struct.versioned import Claim, Written, annotation_of, document_of_class, series_of_class, written

__all__ = ["described", "dump_schema", "schema_of", "written_by"]

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
    return f"# yaml-language-server: $schema={LANGUAGE_SCHEMA_ID}\n{dump_yaml(document.to_shorthand())}"


# ---------------------------------------------------------------------------------------------------------------------
# Classes -> documents.


def schema_of(
    cls: type, *, schema: str | None = None, version: int = 1, report: list[Diagnostic] | None = None
) -> Document:
    """The schema document of a Struct class, with every Struct and Enum that its fields name.

    For a class that was built from a schema file it is that document, and for a class with ``schema=`` the version that it
    says, with its migrations; other arguments give another document.

    Args:
        cls: The class, which becomes the root.
        schema: Identity; by default the class's own, or one of its module and name.
        version: Version, beside ``schema``.
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
    own = None if schema else document_of_class(cls)
    if own is None:
        document, _, notes = _document(cls, schema or identity_of(cls), version)
    else:
        held = written(stored_class(cls))
        document, notes = own, [] if held is None else [*held.notes]
    if report is not None:
        report += notes
    return document


def described(cls: type) -> tuple[Document, str, Mapping[str, type]]:
    """The document of a Struct class, the name of the class in it, and the class behind each name there."""
    held, own = written(stored_class(cls)), document_of_class(cls)
    if held is not None:
        return held.document, held.document.root, held.classes
    if own is None:
        document, classes, _ = _document(cls, identity_of(cls), 1)
        return document, document.root, classes
    series: Any = series_of_class(cls)
    return own, _made_name(cls), {**classes_of(series, own.version), _made_name(cls): cls}


def written_by(cls: type) -> Written:
    """What a class with ``schema=`` declares; see :func:`neuralqx_struct.versioned.written`.

    Raises:
        SchemaError: It is no valid document, or the classes that it uses use it.
    """
    said: Claim = vars(cls)["__nqx_claim__"]
    with _WRITING:
        if cls in _OPEN:
            way = " -> ".join(vars(each)["__nqx_claim__"].id for each in (*_OPEN, cls))
            message = f"expected schemas that end, got the cycle {way}"
            raise SchemaError(message, code="NQX135", hint="give only the outermost of these classes schema=")
        _OPEN.append(cls)
        try:
            document, classes, notes = _document(cls, said.id, said.version, said.ways())
        finally:
            _OPEN.pop()
    structs = {known: document.ref(name) for name, known in classes.items() if name in document.structs}
    enums = {
        known: {
            field: cast("type[enum.Enum]", classes[chosen])
            for field, declared in document.structs[name].stored.items()
            if (chosen := _choice(declared.declared)) in document.enums
        }
        for name, known in classes.items()
        if name in document.structs
    }
    return Written(document, classes, structs, enums, tuple(notes))


def _choice(declared: Type) -> str:
    """The name of an enum that a type is, null aside."""
    options = [o for o in declared.options if o != Null()] if isinstance(declared, Union) else [declared]
    return options[0].name if len(options) == 1 and isinstance(options[0], Named) else ""


#: The classes with ``schema=`` that are being written, each used by the one before it.
_OPEN: list[type] = []
_WRITING = threading.RLock()


def _document(
    cls: type, schema: str, version: int, migrations: Sequence[Migration] = ()
) -> tuple[Document, dict[str, type], list[Diagnostic]]:
    writing = _Writing()
    root = writing.name_of(cls)
    data = {
        "language": "1",
        "schema": schema,
        "version": version,
        "root": root,
        **({"uses": [f"{used.id}@{used.version}" for used in writing.used.values()]} if writing.used else {}),
        **({"enums": writing.enums} if writing.enums else {}),
        "structs": writing.structs,
        **(
            {"migrations": [m.model_dump(mode="json", by_alias=True, exclude_unset=True) for m in migrations]}
            if migrations
            else {}
        ),
    }
    document = writing.settled(data, f"schema_of({cls.__name__})")
    return document, writing.classes, writing.report


class _Writing:
    """One walk over classes; collects what becomes of them, and what the language cannot say."""

    def __init__(self) -> None:
        self.structs: dict[str, dict[str, Any]] = {}
        self.enums: dict[str, dict[str, Any]] = {}
        self.used: dict[str, Document] = {}
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
                self.enums[name] = {"members": [member.name for member in cls], **written_doc(cls)}
            else:
                declaration = self.structs[name] = {**written_doc(cls), "fields": {}}
                docs = documented_fields(cls)
                outer = self._where
                for spec in _specs(cls).values():
                    self._where = f"{cls.__name__}.{spec.name}"
                    if spec.is_derived:
                        self.note(
                            "left out: a field that Python code derives", "say it in the schema: derived: size(w)"
                        )
                    else:
                        declaration["fields"][spec.name] = self.field(cls, spec, docs.get(spec.name, ""))
                self._where = outer
        return self._names[cls]

    def field(self, cls: type, spec: FieldSpec, doc: str) -> dict[str, Any]:
        data: dict[str, Any] = {}
        if spec.kind is not FieldKind.OPAQUE or spec.should_serialize:
            data["type"] = format_type(self.type(annotation_of(cls, spec)))
        if spec.kind is not FieldKind.NODE:
            data["kind"] = spec.kind.value
        if spec.has_default:
            default = plain_default(spec)
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
        return data | described_field(spec, doc)

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
            several = hasattr(hint, "dim_str") or _is_array_like(hint)  # Float[Array, "n"] is of any precision
            advice = "say dtype and shape, as in jaxtyping's Float32[Array, 'n d']" if several else None
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
        if issubclass(bare, (Param, Params)):  # a struct of the schema would be another class, without their methods
            return PyTree()
        return self.struct(bare) if is_struct(bare) else None

    def struct(self, cls: Any) -> Type | None:
        """The type of a Struct class: one of this document, or of the other one whose version it is."""
        if cls in self._names or (own := document_of_class(cls)) is None:
            return Named(self.name_of(cls))
        known = self.used.setdefault(own.id, own)
        if payload_fingerprint(known) != payload_fingerprint(own):
            return None  # a document uses one version of another
        name: str = own.root if written(stored_class(cls)) is not None else _made_name(cls)
        return Named(f"{own.id}.{name}")

    # --- what only the whole document shows --------------------------------------------------------------------------

    def settled(self, data: dict[str, Any], name: str) -> Document:
        """The document; types and defaults that do not stand the checks of the language give way.

        Raises:
            SchemaError: Other checks fail.
        """
        find = among(self.used.values())
        document = link(document_from_data(data, name), find)
        wrong = list(_errors(document))
        if wrong:
            for finding in wrong:
                self._give_way(finding)
            document = link(document_from_data(data, name), find)
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
    options = dict.fromkeys(_widened(option, options) for option in options)
    return PyTree() if PyTree() in options else Union(tuple(options)) if len(options) > 1 else next(iter(options))


def _widened(option: Type, options: Iterable[Type]) -> Type:
    """An array, with any size where others of its dtype and rank have another: a reader could not tell them apart."""
    if not isinstance(option, Array) or ... in option.shape:
        return option
    alike = [
        other.shape
        for other in options
        if isinstance(other, Array)
        and (other.dtype, len(other.shape)) == (option.dtype, len(option.shape))
        and ... not in other.shape
    ]
    return Array(option.dtype, tuple(s[0] if len({*s}) == 1 else _ANY for s in zip(*alike, strict=True)))


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
    typing.Final: lambda writing, args: writing.type(args[0]),
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


def _made_name(cls: type) -> str:
    """The name of the class that a schema file made, from which a class inherits or that it is."""
    return next(base.__name__ for base in cls.__mro__ if "__nqx_document__" in vars(base))


def _is_array_like(hint: Any) -> bool:
    bare = typing.get_origin(hint) or hint
    return isinstance(bare, type) and issubclass(bare, (jax.Array, np.ndarray))


def _shaped(hint: Any) -> Type | None:
    """A type of jaxtyping, or of whatever describes arrays in its way: by ``dtypes`` and ``dim_str``."""
    # Numpy calls the dtype bool also bool_.
    dtypes = (
        list(dict.fromkeys(d.removesuffix("_") for d in hint.dtypes)) if isinstance(hint.dtypes, (list, tuple)) else []
    )
    extents = [_extent(axis) for axis in str(hint.dim_str).split()]
    if len(dtypes) != 1 or None in extents:
        return None
    shape = tuple(extent for extent in extents if extent is not None)
    if dtypes[0] == "prng_key":
        return Key(None, shape)
    return Array(dtypes[0], shape) if dtypes[0] in DTYPES else None


_ANY = parse_expression("_")


def _extent(axis: str) -> Extent | None:
    """One axis in jaxtyping's notation: ``n``, ``3``, ``n+1``, ``_``, ``rows=3``, ``*batch``, ``#n``, ``...``."""
    if axis == "..." or axis.startswith(("*", "#*", "?*")):
        return ...
    if axis.startswith(("_", "#", "?")):
        return _ANY
    try:
        return parse_expression(axis.rpartition("=")[2])
    except SchemaError:
        return None


def _errors(document: Document) -> Iterator[Finding]:
    checks: Sequence[Callable[[Document], Iterator[Finding]]] = (*CHECKS, *VALUE_CHECKS)
    return (finding for check in checks for finding in check(document) if finding.severity == "error")
