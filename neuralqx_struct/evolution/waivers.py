"""Waivers: findings of `breaking` that are accepted, each for a reason that everybody can read.

``waivers.yaml`` is beside the schemas' folders::

    waivers:
      - {code: NQX415, schema: lab.net, path: $.structs.Net.fields.b, reason: version 2 was never released}

Example:
    >>> Accepted(waivers=(Waiver(code="NQX415", reason="never released"),)).waivers[0].path is None
    True
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, StrictStr, ValidationError

from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.evolution.against import folder_of_schemas
from neuralqx_struct.schema.lock import WAIVERS_NAME
from neuralqx_struct.schema.migration import Declaration
from neuralqx_struct.schema.text.loader import read_file


class Waiver(Declaration):
    """One finding that is accepted."""

    code: Annotated[str, Field(strict=True, pattern=r"^NQX\d{3}$")]
    reason: Annotated[str, Field(strict=True, min_length=1)]
    schema_id: StrictStr | None = Field(None, alias="schema")
    path: StrictStr | None = None

    def covers(self, finding: Diagnostic, identity: str) -> bool:
        """True if it is about a finding."""
        same_schema = self.schema_id in (None, identity)
        return self.code == finding.code and same_schema and self.path in (None, finding.path)


class _Waivers(Declaration):
    waivers: list[Waiver]


@dataclass
class Accepted:
    """The waivers, and the positions of those that were needed.

    Attributes:
        file: Where they are written; empty without any.
        waivers: The waivers.
        used: The positions of those that covered a finding.
    """

    file: str = ""
    waivers: tuple[Waiver, ...] = ()
    used: set[int] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path, named: str | Path | None) -> Accepted:
        """The waivers for the schemas at a path: those of a named file, or of the one beside the schemas' folders.

        Raises:
            SchemaError: NQX010: the file holds something else.
        """
        # Every file in the folder of one schema is a version of it, so waivers are in the folder above.
        where = Path(named) if named is not None else folder_of_schemas(path) / WAIVERS_NAME
        if named is None and not where.is_file():
            return cls()
        source = read_file(where)
        try:
            return cls(str(where), tuple(_Waivers.model_validate(source.data).waivers))
        except ValidationError as error:
            hint = "waivers: [{code: NQX415, path: $.structs.A.fields.b, reason: never released}]"
            wanted = "expected waivers with a code and a reason"
            raise SchemaError(
                source.diagnostic("NQX010", each["loc"], f"{wanted}, got: {each['msg']}", hint=hint)
                for each in error.errors()
            ) from None

    def waived(self, finding: Diagnostic, identity: str) -> Diagnostic:
        """The finding, as information if a waiver covers it."""
        for position, waiver in enumerate(self.waivers):
            if waiver.covers(finding, identity):
                self.used.add(position)
                message = f"{finding.message}\nwaived: {waiver.reason}"
                return replace(finding, severity="info", message=message)
        return finding

    def unused(self, judged: Container[str]) -> Iterator[Diagnostic]:
        """Yields findings about waivers that are no longer needed, but those for schemas beside that were not judged."""
        for position, waiver in enumerate(self.waivers):
            name = waiver.schema_id or ""
            beside = Path(self.file).parent / name.rpartition(".")[2]
            if position in self.used or (name not in judged and any(beside.glob("v*.*"))):
                continue
            message = f"expected a finding {waiver.code} for the waiver, got none"
            at = f"$.waivers[{position}]"
            yield Diagnostic("NQX293", "warning", message, at, self.file, hint="remove it")
