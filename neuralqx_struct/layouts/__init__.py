r"""Layouts: the members of a layout file, which maps names and forms of arrays of foreign checkpoints, and its reader.

A rule describes the file; the schema describes the result. So ``axis``, ``sizes``, ``reshape`` and ``cast`` of a rule are
those of arrays in the file. ``lint.py`` checks it against a schema.

Example:
    >>> Rule.model_validate({"name": "weight", "transpose": True}).names("kernel")
    ('weight',)
    >>> layout, _ = read_layout('language: "1"\nlayout: hf\nof: lab.net@1\n')
    >>> layout.separator, layout.ref.version
    ('.', 1)
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from neuralqx_struct.errors import SchemaError, did_you_mean
from neuralqx_struct.printing import brief_scalar
from neuralqx_struct.references import IDENTITY, SchemaRef
from neuralqx_struct.schema.migration import Declaration, Name, Size
from neuralqx_struct.schema.reading import all_of, structural
from neuralqx_struct.schema.series import SUFFIXES, Series, layout_files
from neuralqx_struct.schema.text import KeyPath, Source
from neuralqx_struct.schema.text.loader import read_file, read_text

#: The text of a rule that numbers replace, and the one that keys of dicts replace.
NUMBER, KEY = "{i}", "{key}"
_REF = f"^{IDENTITY.pattern}@[1-9][0-9]{{0,8}}$"
_SEPARATOR = r"^[^\\\x00-\x1f]$"
#: A plain value that a file cannot show.
Plain = StrictBool | StrictInt | float | StrictStr | list[Any] | dict[str, Any] | None
How = Literal["concat", "stack"]


def _written(pattern: str, words: str) -> AfterValidator:
    """Checks a text with an error that has words for its form."""

    def check(text: str) -> str:
        if re.search(pattern, text) is None:
            raise ValueError(f"{words}, got {brief_scalar(text)}")
        return text

    return AfterValidator(check)


class Rule(Declaration):
    """How the file names and lays out one field: ``{name: weight, transpose: true}``, or the name alone."""

    name: StrictStr | Annotated[list[StrictStr], Field(min_length=1)] | None = Field(
        None,
        description="Part of the name behind that of the struct; a leading / starts anew. A list merges several arrays.",
        examples=["weight", "encoder.layer.{i}", "/lm_head.weight"],
    )
    merge: How = Field("concat", description="With a list of names: how they become one array.")
    part: Annotated[list[StrictInt], Field(min_length=2, max_length=2)] | StrictInt | None = Field(
        None,
        description="The field is one part of the array: [k, n] the k-th of n equal ones, or k with `sizes`.",
    )
    split: How = Field(
        "concat", description="With part: along an axis, or at one position of it (stack)."
    )
    axis: StrictInt = Field(0, description="The axis of `merge` and `part`, in the file.")
    sizes: list[Size] | None = Field(
        None, min_length=1, description="Sizes of the parts along the axis, if they differ."
    )
    blocks: Size | None = Field(
        None, description="The axis has so many blocks, with every part in each of them."
    )
    stack: StrictInt | None = Field(
        None, description="Of a stacked struct: the axis of the layers, in the file."
    )
    unstack: StrictInt | None = Field(
        None, description="Of a list: the axis of its items, in the file."
    )
    reshape: list[Size] | None = Field(
        None, description="The shape in the file; it becomes the declared one."
    )
    transpose: Literal[True] | list[StrictInt] | None = Field(
        None, description="True reverses the axes of the file; or as in numpy.transpose."
    )
    cast: StrictStr | None = Field(None, description="The dtype in the file.")
    exact: StrictBool = Field(True, description="With cast: refuse values that change.")

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, (str, list)) else data

    def names(self, field: str) -> tuple[str, ...]:
        """The parts of names for a field."""
        if self.name is None:
            return (field,)
        return (self.name,) if isinstance(self.name, str) else tuple(self.name)

    @property
    def parts(self) -> int:
        """The number of parts that share one array of the file."""
        if self.part is None:
            return 1
        return self.part[1] if isinstance(self.part, list) else len(self.sizes or ())

    @property
    def place(self) -> int:
        """The number of the part that the field is."""
        part = self.part or 0
        return part[0] if isinstance(part, list) else part


class Layout(Declaration):
    """How one kind of foreign checkpoint names and lays out the arrays of one version of a schema."""

    language: Literal["1"]
    layout: Name = Field(description="The name; that of the file without .yaml.")
    of: Annotated[StrictStr, _written(_REF, "a version of a schema, such as lab.minilm@1")] = Field(
        description="The version of the schema, such as lab.minilm@1.",
        json_schema_extra={"pattern": _REF},
    )
    doc: StrictStr = ""
    prefix: list[StrictStr] = Field(
        default=[""],
        min_length=1,
        max_length=100,  # the whole schema is tried with each
        description="In front of all names; the one that fits is taken.",
    )
    separator: Annotated[StrictStr, _written(_SEPARATOR, "one character but a backslash")] = Field(
        ".",
        description="One character between the names of structs and of fields.",
        json_schema_extra={"pattern": _SEPARATOR},
    )
    ignore: list[StrictStr] = Field(
        default_factory=list, description="Arrays that are left out, such as pooler.*."
    )
    values: dict[str, Plain] = Field(
        default_factory=dict, description="Values and sizes that no file shows, by name or path."
    )
    values_from: dict[str, dict[str, StrictStr]] = Field(
        default_factory=dict,
        description="Such values by JSON files beside the source: {config.json: {n_heads: num_attention_heads}}.",
    )
    structs: dict[str, dict[Name, Rule]] = Field(
        default_factory=dict, description="Rules by struct and field."
    )

    @property
    def ref(self) -> SchemaRef:
        """The version of the schema."""
        found = SchemaRef.parse(self.of)
        assert found is not None  # by the pattern
        return found

    def rules(self, struct: str) -> Mapping[str, Rule]:
        """The rules of a struct by field."""
        return self.structs.get(struct, {})


def parse_layout(source: Source) -> Layout:
    """Validates the content of a file.

    Raises:
        SchemaError: Every structural error at once, each with file, line and column.
    """
    try:
        return Layout.model_validate(source.data)
    except ValidationError as error:
        raise all_of(structural(error, source, model_at), source) from None


def model_at(path: KeyPath) -> type[Layout | Rule] | None:
    """The model of the declaration at a path of a layout, if there is one."""
    match path:
        case ():
            return Layout
        case ("structs", _, _):
            return Rule
    return None


def read_layout(where: Any, series: Series | None = None) -> tuple[Layout, Source]:
    """Reads a layout.

    Args:
        where: A name, the path of a file, text (if it has a newline), a mapping of plain values, or a layout.
        series: The schema, whose folder has the layouts by name, and that the layout has to be of.

    Returns:
        The layout, and the file as read.

    Raises:
        SchemaError: Every error in the file; NQX708 if there is no layout of the name; NQX404 if it is of another
            schema, or of a version that is not known.
    """
    if isinstance(where, Layout):
        layout, source = where, Source(where.layout)
    else:
        known = layout_files(None if series is None else series.folder)
        source = named_source(where, known, "a layout", "layouts/hf.yaml")
        layout = parse_layout(source)
    if series is not None:
        _require_known(layout, source, series)
    return layout, source


def named_source(where: Any, known: Mapping[str, Path], kind: str, example: str) -> Source:
    """The content of a file beside a schema.

    Args:
        where: A name, the path of a file, text (if it has a newline), or a mapping of plain values.
        known: The files of the folder of the schema by name.
        kind: The word for it.
        example: A path in that folder.

    Raises:
        SchemaError: The file cannot be read; NQX708 if there is none of the name.
    """
    unnamed, file = f"<{kind.removeprefix('a ')}>", Path(example)
    if isinstance(where, Mapping):
        return Source(unnamed, dict(where))
    if not isinstance(where, (str, os.PathLike)):
        message = f"expected a mapping, a name, the path or the text of {kind}, got {type(where).__name__}"
        raise SchemaError(message, code="NQX708", hint=f"such as {file.stem!r} or {example!r}")
    if isinstance(where, str) and "\n" in where:
        return read_text(where, unnamed)
    name = os.fspath(where)
    if name in known:
        return read_file(known[name])
    if Path(name).suffix in SUFFIXES:
        return read_file(where)
    listed = f"it has {', '.join(known)}" if known else "it has none"
    message = f"expected {kind} of the schema, got {name[:100]!r}\n{listed}"
    hint = f"name a file, such as {file.name}, or write one in {file.parent}/"
    raise SchemaError(message, code="NQX708", hint=did_you_mean(name, known) or hint)


def _require_known(layout: Layout, source: Source, series: Series) -> None:
    ref = layout.ref
    hint = None
    if ref.id != series.id:
        message = f"expected a layout of {series.id}, got one of {ref.id}"
    elif ref.version not in series.documents:
        known = ", ".join(map(str, series.versions))
        message = f"expected a version of {series.id} that is known, got {ref.version}"
        hint = f"known versions: {known}"
    else:
        return
    raise SchemaError([source.diagnostic("NQX404", ("of",), message, hint=hint)])
