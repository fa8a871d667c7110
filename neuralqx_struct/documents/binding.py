"""Schema bindings: ``class State(Struct, schema="lab.state", version=2, migrations=[...])``.

Owns the keywords of such a class statement (:class:`SchemaBinding`); ``references.py`` has the table of bound classes.
``bound.py`` derives the schema document of a bound class.

Example:
    >>> schema_binding("State", "lab.state", 2, [])
    SchemaBinding(id='lab.state', version=2, migrations=())
    >>> schema_binding("State", None, 2, [])
    Traceback (most recent call last):
        ...
    TypeError: State: expected schema="..." beside version=, got none; name the schema whose version the class is
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from neuralqx_struct.errors import Diagnostic, did_you_mean
from neuralqx_struct.fieldspec import Values
from neuralqx_struct.printing import brief
from neuralqx_struct.references import IDENTITY
from neuralqx_struct.schema.migration import Migration, Step, StepItem
from neuralqx_struct.schema.model import Document

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEYWORDS = ("kw_only", "schema", "version", "migrations", "metaclass")


@dataclass(frozen=True, slots=True)
class SchemaBinding:
    """The schema version that a Python class declares to be.

    Attributes:
        id: The identity of the schema.
        version: The version of the class.
        migrations: The migration from the version before to this one, optionally preceded by those of earlier versions,
            each to the version behind it.
    """

    id: str
    version: int
    migrations: tuple[Migration, ...]

    def direct_migrations(self) -> list[Migration]:
        """The migrations of all earlier versions, each composed to lead straight to this one.

        Readers that lack the versions in between need them.
        """
        found: list[Migration] = []
        steps: list[StepItem] = []
        for migration in sorted(self.migrations, key=lambda m: -m.from_version):
            steps = [*migration.steps, *steps]
            found.append(migration.model_copy(update={"steps": steps}))
        return found


@dataclass(frozen=True, slots=True)
class ClassDocument:
    """The schema document of a bound class.

    Attributes:
        document: The document, linked to those that it uses.
        classes: The Struct and Enum classes behind the names in it.
        refs: The references under which instances of those Structs are saved inside one of the root.
        enums: For each of those Structs, the Enum classes of its fields: their members are saved as text, as in every
            schema, so that bundles are read where the classes are not known.
        notes: The facts that the schema language cannot express.
    """

    document: Document
    classes: Mapping[str, type]
    refs: Mapping[type, str]
    enums: Mapping[type, Mapping[str, type[enum.Enum]]]
    notes: tuple[Diagnostic, ...]


def check_keywords(name: str, bases: tuple[type, ...], unknown: Values) -> None:
    """Refuse keywords of a class statement that neither Structs nor the ``__init_subclass__`` of a base know.

    Args:
        name: The class, for messages.
        bases: Its bases.
        unknown: The keywords that Structs do not know.

    Raises:
        TypeError: There are some, and no base takes keywords of its own.
    """
    if not unknown:
        return
    ancestors = {ancestor for base in bases for ancestor in base.__mro__} - {object, Generic}
    if any("__init_subclass__" in vars(ancestor) for ancestor in ancestors):
        return
    word = next(iter(unknown))
    hint = did_you_mean(word, _KEYWORDS)
    known = ", ".join(_KEYWORDS[:-1])
    message = f"{name}: expected {known} or no keyword in the class statement, got {word!r}"
    raise TypeError(f"{message}; {hint}" if hint else message)


def schema_binding(name: str, schema: Any, version: Any, migrations: Any) -> SchemaBinding | None:
    """Check the keywords ``schema``, ``version`` and ``migrations`` of a class statement.

    Args:
        name: The class, for messages.
        schema: As given; None if it was not.
        version: Likewise.
        migrations: Likewise.

    Returns:
        None for a class without ``schema``.

    Raises:
        TypeError: A keyword has an invalid value.
    """
    if schema is None:
        for keyword, value in (("version", version), ("migrations", migrations)):
            if value is not None:
                raise TypeError(
                    f'{name}: expected schema="..." beside {keyword}=, got none; '
                    "name the schema whose version the class is"
                )
        return None
    if not isinstance(schema, str) or not IDENTITY.fullmatch(schema):
        raise TypeError(
            f"{name}: schema=: expected an identity such as 'lab.train_state', got {brief(schema)}"
        )
    if not _NAME.fullmatch(name):
        raise TypeError(
            f"{name}: expected a name of ASCII letters, digits and _ for a class with schema=, got {name!r}"
        )
    version = 1 if version is None else version
    if type(version) is not int or version < 1:
        raise TypeError(
            f"{name}: version=: expected an int that is 1 or more, got {brief(version)}"
        )
    given = () if migrations is None else migrations
    return SchemaBinding(schema, version, _migrations(name, version, given))


def _migrations(name: str, version: int, migrations: Any) -> tuple[Migration, ...]:
    start = max(version - 1, 1)
    where = f"{name}: migrations=: expected a list such as [s.steps.migration({start}, [...])]"
    single = isinstance(migrations, (str, Mapping, Migration, Step))
    if single or not isinstance(migrations, Iterable):
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
            f"{name}: migrations=: expected one from each version up to {version - 1}, "
            f"got {', '.join(map(str, starts))}; one that needs no steps is s.steps.migration(n, [])"
        )
    return found
