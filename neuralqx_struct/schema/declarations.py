"""Declarations that types of fields name: sizes, enums and choices of dtypes.

Example:
    >>> DtypeDeclaration.model_validate(["float32", "bfloat16"]).members
    ['float32', 'bfloat16']
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import Field, StrictInt, StrictStr, model_validator

from neuralqx_struct.expressions import Expression, parse_equation
from neuralqx_struct.schema.migration import Declaration, Name


class DimDeclaration(Declaration):
    """A size shared by the whole instance tree."""

    min: StrictInt | None = Field(None, ge=0)
    max: StrictInt | None = Field(None, ge=0)
    equals: StrictStr | StrictInt | None = Field(
        None, description="Expression over dims, and static ints that the root holds."
    )
    doc: StrictStr = ""

    @cached_property
    def equation(self) -> Expression | None:
        """``equals`` as an expression."""
        return None if self.equals is None else parse_equation(str(self.equals))


class Listed(Declaration):
    """A declaration whose short form is the list of its members."""

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: Any) -> Any:
        return {"members": data} if isinstance(data, list) else data


class EnumDeclaration(Listed):
    """A closed set of names."""

    members: list[Name] = Field(min_length=1)
    default: Name | None = Field(
        None, description="The member that unknown names of newer payloads become."
    )
    aliases: dict[Name, list[Name]] = Field(
        default_factory=dict,
        description="Former names by member, for payloads without a migration.",
    )
    doc: StrictStr = ""

    @property
    def former(self) -> dict[str, str]:
        """The members by their former names."""
        return {alias: name for name, aliases in self.aliases.items() for alias in aliases}


class DtypeDeclaration(Listed):
    """A choice of dtypes: all arrays of an instance tree that name it have the same one."""

    members: list[StrictStr] = Field(min_length=1, examples=[["float32", "bfloat16"]])
    doc: StrictStr = ""
