r"""Reading layouts: from a file, from text, or by name from the folder of a schema.

Example:
    >>> layout, _ = read_layout('language: "1"\nlayout: hf\nof: lab.net@1\n')
    >>> layout.separator, layout.ref.version
    ('.', 1)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from neuralqx_struct.errors import SchemaError, did_you_mean
from neuralqx_struct.layouts.model import Layout, Rule
from neuralqx_struct.schema.reading import all_of, structural
from neuralqx_struct.schema.series import SUFFIXES, Series, layout_files
from neuralqx_struct.schema.text import KeyPath, Source
from neuralqx_struct.schema.text.loader import read_file, read_text


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
        source = _source(where, None if series is None else series.folder)
        layout = parse_layout(source)
    if series is not None:
        _require_known(layout, source, series)
    return layout, source


def _source(where: Any, folder: Path | None) -> Source:
    if isinstance(where, Mapping):
        return Source("<layout>", dict(where))
    if not isinstance(where, (str, os.PathLike)):
        message = f"expected the name, the path or the text of a layout, got {type(where).__name__}"
        raise SchemaError(message, code="NQX708", hint="such as 'hf' or 'layouts/hf.yaml'")
    if isinstance(where, str) and "\n" in where:
        return read_text(where, "<layout>")
    known = layout_files(folder)
    name = os.fspath(where)
    if name in known:
        return read_file(known[name])
    if Path(name).suffix in SUFFIXES:
        return read_file(where)
    listed = f"it has {', '.join(known)}" if known else "it has none"
    message = f"expected a layout of the schema, got {name[:100]!r}\n{listed}"
    hint = did_you_mean(name, known) or "name a file, such as hf.yaml, or write one in layouts/"
    raise SchemaError(message, code="NQX708", hint=hint)


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
