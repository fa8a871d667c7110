"""Structs from dicts of their fields: :func:`from_dict`, the inverse of ``to_dict``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from neuralqx_struct.classes.documents import classes_in, described
from neuralqx_struct.classes.schemas import Schema, load_schema
from neuralqx_struct.container.derivation import complete
from neuralqx_struct.errors import Diagnostic, SerializationError, StructError
from neuralqx_struct.fieldspec import Specs, Values, is_struct
from neuralqx_struct.paths import FieldName, Path, format_path
from neuralqx_struct.printing import brief
from neuralqx_struct.schema.catalogue import Catalogue
from neuralqx_struct.schema.model import Document
from neuralqx_struct.types.records import Type

__all__ = ["from_dict"]


def from_dict(data: Values, target: Any) -> Any:
    """The Struct of a dict of its fields; the inverse of ``to_dict``, recursive or not.

    As in a load, converters, derivation and validation run, ``__post_init__`` does not, and fields that are left out get
    their defaults. Derived fields are computed.

    Args:
        data: Values by field name. Dicts become Structs where the field is declared to hold those, also inside lists,
            tuples and dicts.
        target: A Struct class, or a schema, which means its root: a ``Schema``, a ``Document``, or the path of one, ``id@3``
            and ``path@3`` too; identities are looked up in the folder ``schemas``.

    Raises:
        TypeError: ``data`` is no mapping, or ``target`` is neither.
        SchemaError: The schema at the path cannot be read.
        SerializationError: With every name that is no field, and every field without a value, of all structs.
        ValidationError: Values are invalid, of all structs inside; those of a struct around such are checked when they are right.

    Example:
        >>> from neuralqx_struct.struct import Struct
        >>> class Point(Struct):
        ...     x: float
        ...     y: float = 0.0
        >>> from_dict(Point(1.5).to_dict(), Point)
        Point(x=1.5, y=0.0)
    """
    cls = _class_of(target)
    if not isinstance(data, Mapping):
        raise TypeError(f"from_dict(): expected a mapping of fields, got {brief(data)}")
    building = _Building()
    made = building.struct(data, cls, (), hooks=True)
    building.finish()
    return made


def _class_of(target: Any) -> Any:
    """The class that a target means."""
    if isinstance(target, (str, os.PathLike)):
        text = os.fspath(target)
        is_text = isinstance(target, str) and "\n" in text
        target = load_schema(text if is_text else Catalogue(FilePath("schemas")).find(text))
    if isinstance(target, Schema):
        return target.root
    if isinstance(target, Document):
        return classes_in(target)[target.root]
    if not isinstance(target, type) or not is_struct(target):
        raise TypeError(f"from_dict(): expected a Struct class or a schema, got {brief(target)}")
    return target


class _Building:
    """The Structs of one dict, with the errors of all of them."""

    def __init__(self) -> None:
        self.errors: list[StructError] = []

    def finish(self) -> None:
        """Raises all errors together."""
        if not self.errors:
            return
        kinds = {type(error) for error in self.errors}
        kind = kinds.pop() if len(kinds) == 1 else SerializationError
        found = (problem for error in self.errors for problem in error.diagnostics)
        raise kind(found) from self.errors[0].__cause__

    def struct(self, data: Values, cls: Any, place: Path, *, hooks: bool) -> Any:
        """The Struct at a place; without hooks for a stacked one, which the struct around it checks."""
        specs: Specs = cls.__nqx_fields__
        document, struct, classes = described(cls)
        declared = document.structs[struct].fields
        before = len(self.errors)
        stored: dict[str, Any] = {}
        for key, value in data.items():
            if key in specs and specs[key].is_derived:
                continue
            stored[key] = value
            if key in declared:
                at = (*place, FieldName(key))
                stored[key] = self.value(value, declared[key].declared, classes, at, hooks=hooks)
        known = {
            key: spec.make_default if spec.has_default else None
            for key, spec in specs.items()
            if (not spec.is_derived and not spec.reset) or key in stored
        }
        try:
            values = complete(cls, stored, known)
            if len(self.errors) > before:
                return None  # a Struct inside is missing
            return (cls.__nqx_restore__ if hooks else cls.__nqx_assemble__)(values)
        except StructError as error:
            moved = type(error)(_below(each, place) for each in error.diagnostics)
            moved.__cause__ = error.__cause__
            self.errors.append(moved)
            return None

    def value(
        self, value: Any, wanted: Type, classes: Mapping[str, type], place: Path, *, hooks: bool
    ) -> Any:
        """The value with Structs in place of dicts, where the type has them."""
        if type(value) is dict:
            single = {
                branch.parts[0] if branch.stacks else branch: branch for branch in wanted.branches
            }
            named: Iterable[Any] = ((classes.get(each.refers), each) for each in single)
            structs = [(each, one) for each, one in named if each is not None and is_struct(each)]
            fitting = [(each, one) for each, one in structs if _fits(value, each)]
            if fitting or len(structs) == 1:
                inner, one = (fitting or structs)[0]
                return self.struct(value, inner, place, hooks=hooks and not single[one].stacks)

        def build(item: Any, part: Type, key: Hashable) -> Any:
            return self.value(item, part, classes, (*place, key), hooks=hooks)

        held = [branch for branch in wanted.branches if branch.parts and not branch.stacks]
        keyed = any(branch.below is not None for branch in held)
        if type(value) is dict and held and not keyed and [*value] == [*range(len(value))]:
            value = [*value.values()]  # a list, as NNX has it in its states
        for branch in wanted.branches:
            if branch.parts and isinstance(value, dict):
                return {key: build(item, branch.parts[-1], key) for key, item in value.items()}
            if branch.parts and isinstance(value, (list, tuple)):
                items = zip(value, itertools.cycle(branch.parts), itertools.count(), strict=False)
                make: Any = getattr(value, "_make", type(value))
                return make([build(*each) for each in items])
        return value


def _below(problem: Diagnostic, place: Path) -> Diagnostic:
    """A problem of a Struct inside, at the place of that."""
    if not place:
        return problem
    end = min((problem.path + ".").find("."), (problem.path + "[").find("["))
    return replace(problem, path=format_path(place) + problem.path[end:])


def _fits(data: Values, cls: Any) -> bool:
    """True if a dict has all fields that a class needs, and no others."""
    specs: Specs = cls.__nqx_fields__
    needed = {name for name, spec in specs.items() if not spec.has_default and not spec.is_derived}
    return needed <= data.keys() <= specs.keys()
