"""Python classes that are versions of a schema: ``class State(Struct, schema="lab.state", version=2, migrations=[...])``.

Owns what such a class claims of itself (:class:`Claim`), the table of all claims of this process, and :func:`series_of_class`:
the versions that readers and writers of a class go by, whether a schema file or Python declared it. How a class becomes a
document is ``writer.py``'s; it is asked only when an instance is first saved or loaded, because annotations may name classes
that come later.

Example:
    >>> claim("State", "lab.state", 2, [])
    Claim(id='lab.state', version=2, migrations=())
    >>> claim("State", None, 2, [])
    Traceback (most recent call last):
        ...
    TypeError: State: expected schema="..." beside version=, got none; name the schema whose version the class is
"""

from __future__ import annotations

import enum
import importlib
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from neuralqx_struct.errors import Diagnostic, did_you_mean
from neuralqx_struct.evolution.plans import Unknown, apply, plan
from neuralqx_struct.fieldspec import FieldSpec, is_struct
from neuralqx_struct.payload import Payload, iter_nodes
from neuralqx_struct.printing import brief
from neuralqx_struct.registry import stored_class
from neuralqx_struct.schema.migration import Migration, Step, StepItem
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.series import Series, series_of
from neuralqx_struct.schema.uses import loaded, remember

__all__ = [
    "Claim",
    "Written",
    "annotation_of",
    "claim",
    "document_of_class",
    "register_claim",
    "series_of_class",
    "with_fields_migrated",
    "written",
]

_IDENTITY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

#: The class that is a version of a schema; the newest definition wins.
_CLAIMED: dict[str, dict[int, Any]] = {}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a class says of itself.

    Attributes:
        id: The identity of the schema.
        version: Which version of it the class is.
        migrations: How payloads of the version before become payloads of this one; those of earlier versions, which lead to
            the version behind them, may stand in front.
    """

    id: str
    version: int
    migrations: tuple[Migration, ...]

    def ways(self) -> list[Migration]:
        """The migrations from all earlier versions, each straight to this one, for readers that lack those in between."""
        found: list[Migration] = []
        steps: list[StepItem] = []
        for each in sorted(self.migrations, key=lambda m: -m.from_version):
            steps = [*each.steps, *steps]
            found.append(each.model_copy(update={"steps": steps}))
        return found


@dataclass(frozen=True, slots=True)
class Written:
    """What a class with a claim declares, as a document.

    Attributes:
        document: The document, linked to those that it uses.
        classes: The Struct and Enum classes behind the names in it.
        refs: The references under which instances of those Structs are saved inside one of the root.
        enums: For each of those Structs, the Enum classes of its fields: their members are saved as text, as in every
            schema, so that bundles are read where the classes are not known.
        notes: What the schema language cannot say.
    """

    document: Document
    classes: Mapping[str, type]
    refs: Mapping[type, str]
    enums: Mapping[type, Mapping[str, type[enum.Enum]]]
    notes: tuple[Diagnostic, ...]


# ---------------------------------------------------------------------------------------------------------------------
# Claims.


_KEYWORDS = ("kw_only", "schema", "version", "migrations", "metaclass")


def refuse_keywords(name: str, bases: tuple[type, ...], unknown: Mapping[str, Any]) -> None:
    """Refuse keywords of a class statement that neither Structs nor the ``__init_subclass__`` of a base know.

    Args:
        name: The class, for messages.
        bases: Its bases.
        unknown: The keywords that Structs do not know.

    Raises:
        TypeError: There are some, and no base takes keywords of its own.
    """
    if not unknown or any(
        "__init_subclass__" in vars(each) for base in bases for each in base.__mro__ if each not in (object, Generic)
    ):
        return
    word = next(iter(unknown))
    hint = did_you_mean(word, _KEYWORDS)
    message = f"{name}: expected {', '.join(_KEYWORDS[:-1])} or no keyword in the class statement, got {word!r}"
    raise TypeError(f"{message}; {hint}" if hint else message)


def claim(name: str, schema: Any, version: Any, migrations: Any) -> Claim | None:
    """Check the keywords of a class statement.

    Args:
        name: The class, for messages.
        schema: As given, None where it was not.
        version: Likewise.
        migrations: Likewise.

    Returns:
        None for a class that claims nothing.

    Raises:
        TypeError: A keyword is not what it must be.
    """
    if schema is None:
        for keyword, value in (("version", version), ("migrations", migrations)):
            if value is not None:
                message = f'{name}: expected schema="..." beside {keyword}=, got none; name the schema whose version the class is'
                raise TypeError(message)
        return None
    if not isinstance(schema, str) or not _IDENTITY.fullmatch(schema):
        raise TypeError(f"{name}: schema=: expected an identity such as 'lab.train_state', got {brief(schema)}")
    if not _NAME.fullmatch(name):
        raise TypeError(
            f"{name}: expected a name of ASCII letters, digits and _ for a class with schema=, got {name!r}"
        )
    version = 1 if version is None else version
    if type(version) is not int or version < 1:
        raise TypeError(f"{name}: version=: expected an int that is 1 or more, got {brief(version)}")
    return Claim(schema, version, _migrations(name, version, () if migrations is None else migrations))


def _migrations(name: str, version: int, migrations: Any) -> tuple[Migration, ...]:
    where = f"{name}: migrations=: expected a list such as [s.steps.migration({max(version - 1, 1)}, [...])]"
    if isinstance(migrations, (str, Mapping, Migration, Step)) or not isinstance(migrations, Iterable):
        raise TypeError(f"{where}, got {brief(migrations)}")
    found = tuple(migrations)
    for each in found:
        if not isinstance(each, Migration):
            raise TypeError(f"{where}, got one with {brief(each)}")
        if each.from_version >= version:
            raise TypeError(
                f"{name}: migrations=: expected migrations from versions before {version}, got one from {each.from_version}"
            )
    starts = sorted(each.from_version for each in found)
    if starts != [*range(version - len(starts), version)]:
        raise TypeError(
            f"{name}: migrations=: expected one from each version up to {version - 1}, got {', '.join(map(str, starts))}; "
            "one that needs no steps is s.steps.migration(n, [])"
        )
    return found


def register_claim(cls: type, said: Claim) -> str:
    """Make a class the one of its version; gives the reference under which its instances are saved."""
    _CLAIMED.setdefault(said.id, {})[said.version] = cls
    return f"{said.id}@{said.version}:{cls.__name__}"


# ---------------------------------------------------------------------------------------------------------------------
# Documents.


def written(cls: Any) -> Written | None:
    """What a class with a claim of its own declares; None for all others.

    Raises:
        SchemaError: The class has no valid document, such as for a field whose name is not ASCII.
    """
    if "__nqx_claim__" not in cls.__dict__:
        return None
    held: Written | None = cls.__dict__.get("__nqx_written__")
    if held is None:
        # By name, because the writer knows the compiler and so stands below all that reads and saves.
        make: Callable[[Any], Written] = importlib.import_module("neuralqx_struct.writer").written_by
        held = make(cls)
        type.__setattr__(cls, "__nqx_written__", held)
        remember([held.document])
    return held


def document_of_class(cls: Any) -> Document | None:
    """The document whose version a class is, or None; a schema file or the class itself declares it."""
    known: Any = stored_class(cls) if isinstance(cls, type) else None
    held = None if known is None else written(known)
    if held is not None:
        return held.document
    document: Document | None = None if known is None else vars(known).get("__nqx_document__")
    return document


def series_of_class(cls: Any) -> Series | None:
    """All versions that are known here of the schema that a class is a version of, its own among them.

    Earlier versions are classes with the same ``schema=``, and schema files that were loaded.
    """
    known: Any = stored_class(cls) if isinstance(cls, type) else None
    held = None if known is None else written(known)
    if held is None:
        series: Series | None = None if known is None else vars(known).get("__nqx_series__")
        return series
    own = held.document
    for other in list(_CLAIMED.get(own.id, {}).values()):
        written(other)
    return series_of({**{d.version: d for d in loaded(own.id)}, own.version: own}.values())


def claiming(ref: str, preferred: Any = None) -> Iterator[Written]:
    """What the classes that claim the version of a reference such as ``lab.state@2:Layer`` declare.

    Args:
        ref: The reference.
        preferred: A class to ask before that of the table: the one that the caller wants.
    """
    schema_id, _, version = ref.partition(":")[0].rpartition("@")
    claims = [preferred, _CLAIMED.get(schema_id, {}).get(int(version)) if version.isdecimal() else None]
    for cls in claims:
        held = written(cls) if isinstance(cls, type) else None
        if held is not None and (held.document.id, str(held.document.version)) == (schema_id, version):
            yield held


# ---------------------------------------------------------------------------------------------------------------------
# Versions inside plain classes.


def annotation_of(cls: type, spec: FieldSpec) -> Any:
    """The annotation of a field, evaluated where it was written; as it is where that fails."""
    owner = next((base for base in cls.__mro__ if spec.name in base.__dict__.get("__nqx_own__", ())), cls)
    holder = type("_", (), {"__annotations__": {spec.name: spec.type}, "__module__": owner.__module__})
    names = {owner.__name__: owner, cls.__name__: cls}
    try:
        return typing.get_type_hints(holder, localns=names, include_extras=True)[spec.name]
    except (NameError, AttributeError, SyntaxError, TypeError):  # names that only type checkers import, and the like
        return spec.type


def with_fields_migrated(
    payload: Payload,
    cls: type,
    carried: Mapping[str, Series],
    *,
    unknown: Unknown,
    report: list[Diagnostic],
    trust: Iterable[str],
) -> Payload:
    """Bring what a plain Struct holds to the versions that its fields name: it has no version of its own to say so.

    Args:
        payload: One whose root is the plain Struct.
        cls: Its class.
        carried: The schemas in the payload; they serve the versions that are not known here.
        unknown: As for loading.
        report: As for loading.
        trust: As for loading.

    Returns:
        The payload itself where all versions are those. A schema of which two versions are named stays as it is.

    Raises:
        MigrationError: There is no way, or the payload does not allow it.
    """
    wanted, known = _named_by(cls), dict(carried)
    for identity, classes in wanted.items():
        series = next((s for c in classes.values() if c is not None and (s := series_of_class(c)) is not None), None)
        if series is not None:
            known[identity] = series.merged(carried[identity].documents.values()) if identity in carried else series
    for identity, classes in wanted.items():
        if len(classes) != 1 or identity not in known:
            continue
        (target,) = classes
        for version in sorted(_versions_in(payload, identity) - {target}):
            way = plan(known[identity], version, target, unknown=unknown)
            payload = apply(payload, way, others=known, report=report, trust=trust)
    return payload


def _named_by(cls: type) -> dict[str, dict[int, Any]]:
    """The versions that annotations of a plain Struct, and of plain Structs in it, name, and those that these use."""
    found: dict[str, dict[int, Any]] = {}
    todo: list[Any] = [cls]
    seen: set[type] = set()
    while todo:
        hint = todo.pop()
        todo += typing.get_args(hint)
        if not isinstance(hint, type) or hint in seen or not is_struct(hint):
            continue
        seen.add(hint)
        document = document_of_class(hint)
        if document is None:
            specs: Mapping[str, FieldSpec] = vars(hint)["__nqx_fields__"]
            todo += [annotation_of(hint, spec) for spec in specs.values()]
            continue
        found.setdefault(document.id, {})[document.version] = hint
        for used in document.closure():
            found.setdefault(used.id, {}).setdefault(used.version, None)
    return found


def _versions_in(payload: Payload, identity: str) -> set[int]:
    prefix = f"{identity}@"
    refs = (
        n["type"]
        for _, n in iter_nodes(payload.document["manifest"])
        if isinstance(n, dict) and n["__kind__"] == "struct"
    )
    versions = (ref.removeprefix(prefix).partition(":")[0] for ref in refs if ref.startswith(prefix))
    return {int(version) for version in versions if version.isdecimal()}
