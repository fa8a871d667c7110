r"""The canonical layout of schema files, with their comments.

Example:
    >>> text = 'language: "1"\nschema: "lab.a"   # ours\nversion: 1\nroot: A\nstructs: {A: {fields: {}}}\n'
    >>> print(format_schema(text).splitlines()[1])
    schema: lab.a  # ours
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.text import KeyPath, Source
from neuralqx_struct.schema.text.loader import dump_yaml, read_text
from neuralqx_struct.schema.text.yaml_writer import Block

__all__ = ["format_schema"]

_COMMENT = re.compile(r"(?m)(?:^|(?<=[ \t]))#.*$")


def format_schema(text: str, name: str = "<text>") -> str:
    """Returns the text of a schema file in its canonical layout, with its comments and blank lines.

    Args:
        text: The content of the file.
        name: Its name; one that ends with ``.json`` holds JSON.

    Raises:
        SchemaError: All errors in the text.
    """
    is_json = Path(name).suffix == ".json"
    source = read_text(text, name, format="json" if is_json else "yaml")
    document = parse_document(source)
    if is_json:
        return json.dumps(source.data, indent=2, ensure_ascii=False) + "\n"
    body = dump_yaml(_with_blocks(source.data, source))
    for behind in (
        True,
        False,
    ):  # behind the first line of a long text a comment would be part of it
        made = _with_comments(body, text, source, behind=behind)
        try:
            if parse_document(read_text(made)) == document:
                return made
        except SchemaError:
            continue
    message = "expected a layout with the same meaning, got another"
    raise SchemaError(message, code="NQX000", file=name, hint="please report this file")


def _with_comments(body: str, text: str, source: Source, *, behind: bool) -> str:
    """The new text with the comments of the old one, at the declarations that they belong to."""
    lines = body.splitlines()
    made = read_text(body)
    marked = [(_line(source, path), path) for path in _paths(source.data)]
    marked.sort(key=itemgetter(0))
    numbers = [line for line, _ in marked]
    above: dict[int, list[str]] = {}
    for number, comment, is_alone in _comments(text):
        nearest = bisect_left(numbers, number)
        if not is_alone:
            nearest = max(bisect_right(numbers, number) - 1, 0)
        target = len(lines) if nearest == len(marked) else _line(made, marked[nearest][1]) - 1
        if is_alone or not behind:
            above.setdefault(target, []).append(comment)
        else:
            lines[target] += f"  {comment}"
    shown: list[str] = []
    for place, line in enumerate([*lines, ""]):
        indent = line[: len(line) - len(line.lstrip())]
        for comment in above.get(place, ()):
            if comment or shown[-1:] not in ([], [""]):
                shown.append(f"{indent}{comment}".rstrip())
        shown.append(line)
    return "\n".join(shown).rstrip("\n") + "\n"


def _with_blocks(data: Any, source: Source, path: KeyPath = ()) -> Any:
    """The data, with a mark at each mapping that begins on a line of its own."""
    if isinstance(data, list):
        return [_with_blocks(item, source, (*path, key)) for key, item in enumerate(data)]
    if not isinstance(data, dict):
        return data
    made = {key: _with_blocks(item, source, (*path, key)) for key, item in data.items()}
    first = next(iter(data), None)
    if first is None or _line(source, (*path, first)) == _line(source, path):
        return made
    return Block(made)


def _line(source: Source, path: KeyPath) -> int:
    mark = source.mark(path, key=True)
    return 1 if mark is None else mark.line


def _paths(data: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yields the path of each value in a document, outermost first."""
    items: Any = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    for key, value in items:
        yield (*path, key)
        yield from _paths(value, (*path, key))


def _comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yields line, comment and whether it is alone on its line; blank lines are empty comments."""
    scalars = [token for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)]
    starts = []
    for token in scalars:
        start = token.start_mark.index
        # A comment may follow the | or > that begins a block text.
        starts.append(text.find("\n", start) if token.style in ("|", ">") else start)
    position = 0
    for number, line in enumerate(text.split("\n"), 1):
        inside = bisect_right(starts, position) - 1
        if not line.strip() and (inside < 0 or scalars[inside].end_mark.index <= position):
            yield number, "", True
        for found in _COMMENT.finditer(line):
            place = position + found.start()
            inside = bisect_right(starts, place) - 1
            if inside < 0 or scalars[inside].end_mark.index <= place:
                yield number, found.group().rstrip(), not line[: found.start()].strip()
                break
        position += len(line) + 1
