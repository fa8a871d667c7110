r"""Rules of warm starts: which stored arrays a model starts from, and how arrays of another size are adapted.

A rule file is YAML or JSON, as schemas are, and may lie beside the schema of the model:

    language: "1"
    warm_start: from_small
    of: lab.small@2
    paths: {encoder: backbone/encoder, head: null}
    sizes: {embed/words: pad}

Example:
    >>> rules = read_rules({"paths": {"encoder": "backbone", "head": None}})
    >>> rules.source("encoder/w"), rules.source("head/w"), rules.source("norm/scale")
    ('backbone/w', None, 'norm/scale')
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, StrictStr, ValidationError

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.references import IDENTITY, SchemaRef
from neuralqx_struct.schema.migration import Declaration
from neuralqx_struct.schema.reading import all_of, structural
from neuralqx_struct.schema.text import Source
from neuralqx_struct.schema.text.loader import read_file, read_text

Resize = Literal["pad", "repeat", "cut"]


class WarmRules(Declaration):
    """What a model takes from a bundle, beside the arrays of the same path, shape and family of dtypes."""

    language: Literal["1"] = "1"
    warm_start: StrictStr = Field("", description="A name, for people.")
    doc: StrictStr = ""
    of: StrictStr | None = Field(
        None,
        pattern=f"^{IDENTITY.pattern}@[1-9][0-9]{{0,8}}$",
        description="The schema and version to which the bundle is brought first, such as lab.small@2.",
    )
    paths: dict[StrictStr, StrictStr | None] = Field(
        default_factory=dict,
        description="The stored path of a part of the model, by its path there; null keeps the part fresh.",
    )
    sizes: dict[StrictStr, Resize] = Field(
        default_factory=dict,
        description=(
            "How a stored array of another size is adapted, by a glob of paths of the model: pad keeps the fresh values "
            "around it, repeat tiles it, cut takes its first part."
        ),
    )

    @property
    def ref(self) -> SchemaRef | None:
        """The version of the schema that the bundle is brought to."""
        return None if self.of is None else SchemaRef.parse(self.of)

    def rule_of(self, path: str) -> str | None:
        """The longest key of :attr:`paths` that a path of the model is at or below."""
        above = (key for key in self.paths if key in ("", path) or path.startswith(f"{key}/"))
        return max(above, key=len, default=None)

    def source(self, path: str) -> str | None:
        """The stored path for a path of the model; None to keep it fresh."""
        key = self.rule_of(path)
        if key is None:
            return path
        stored = self.paths[key]
        if stored is None:
            return None
        rest = path.removeprefix(key).removeprefix("/")
        return "/".join(filter(None, [stored, rest]))


def read_rules(where: Any) -> WarmRules:
    """Reads rules: a mapping of plain values, the path of a file, or text (if it has a newline); None for no rules.

    Raises:
        SchemaError: Every error of the file.
    """
    if isinstance(where, WarmRules):
        return where
    if isinstance(where, str) and "\n" in where:
        source = read_text(where)
    elif isinstance(where, (str, os.PathLike)):
        source = read_file(where)
    elif where is None or isinstance(where, Mapping):
        source = Source("<rules>", dict(where or {}))
    else:
        message = f"expected a mapping, the path or the text of rules, got {type(where).__name__}"
        raise SchemaError(message, hint="such as {'paths': {'encoder': 'backbone'}}")
    try:
        return WarmRules.model_validate(source.data)
    except ValidationError as error:
        raise all_of(structural(error, source, _model_at), source) from None


def _model_at(path: Any) -> type[WarmRules] | None:
    return None if path else WarmRules
