"""Revisions: the file of the next version, from an edited schema, with the steps that lead to it and open questions.

:func:`revise` chooses the two versions to compare and writes the text of the new file. The author's own text is kept,
comments too; only the version, the reserved names and the migration are written into it. Steps and questions come from
``suggestions``. A question is a comment ``# nqx: question: ...``, which every reader refuses
(NQX318) until it is answered, so that nothing is guessed silently.

Example:
    >>> edited = v3.model_copy(update={"doc": "Another doc."})
    >>> print(revise("schemas/vmc_state", edited=edited).text[-38:], end="")
    migrations:
      - from: 3
        steps: []
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuralqx_struct.errors import Hint, Keyword, SchemaError
from neuralqx_struct.evolution.against import baseline, published_text, with_moved
from neuralqx_struct.evolution.steps import kind, step_text
from neuralqx_struct.evolution.suggestions import suggest
from neuralqx_struct.evolution.suggestions.work import Suggestion
from neuralqx_struct.schema.language import MODELINE
from neuralqx_struct.schema.lint import ABOUT_KEYS
from neuralqx_struct.schema.lint.document import CHECKS
from neuralqx_struct.schema.lock import full_fingerprint
from neuralqx_struct.schema.model import Document
from neuralqx_struct.schema.reading import document_from_data, parse_document
from neuralqx_struct.schema.series import SchemaMissingError, Series, load_series
from neuralqx_struct.schema.text.loader import Source, dump_yaml, read_file, read_text, replace_text
from neuralqx_struct.schema.uses import beside, link

_PUBLISHED = "git:HEAD"


@dataclass(frozen=True, slots=True)
class Revision:
    """The next version of a schema, not written yet.

    Attributes:
        id: The schema.
        version: The new version.
        text: The new file.
        file: Where it belongs.
        steps: The steps that were inferred, each as a line of a file.
        questions: Questions that the author has to answer in the file before it can be read.
        edited: The file that was edited, if it was one.
        published: Its former text, if it is the file of the version before and was edited in place.
    """

    id: str
    version: int
    text: str
    file: Path
    steps: tuple[str, ...]
    questions: tuple[str, ...]
    edited: Path | None = None
    published: str | None = None

    def write(self, out: str | Path | None = None) -> Path:
        """Writes the file, and restores the version that was edited in place.

        Args:
            out: Where to; by default ``file``. Elsewhere nothing else is written.

        Raises:
            SchemaError: NQX400: there is a file already that is not the one that was revised.
        """
        target = self.file if out is None else Path(out)
        own = self.edited is not None and self.published is None and target == self.edited
        if target.exists() and not own:
            raise SchemaError(
                "expected no file of the next version, got one",
                code="NQX400",
                file=str(target),
                hint=Hint(
                    "revise it with ", Keyword("edited", str(target)), ", or name another file"
                ),
            )
        replace_text(target, self.text)
        if out is None and self.edited is not None and self.published is not None:
            replace_text(self.edited, self.published)
        return target


def revise(
    path: str | Path, *, edited: Document | str | Path | None = None, against: str = _PUBLISHED
) -> Revision:
    """Makes the file of the next version from an edited schema.

    Args:
        path: The schema's folder, or its newest file.
        edited: The edited schema: a file, or a document such as :func:`~neuralqx_struct.schema_of` gives for a class. By
            default the newest file of the folder, which was edited in place or is new.
        against: The reference with the former text of the newest file: ``git:REVISION``, a folder or a bundle.

    Returns:
        The text, the steps and the questions; nothing is written.

    Raises:
        SchemaError: A file cannot be read or is wrong; nothing changed; no former version is known.

    Example:
        >>> edited = v3.model_copy(update={"compatibility": "full"})
        >>> revision = revise("schemas/vmc_state", edited=edited)
        >>> revision.version, revision.file.name, revision.steps, revision.questions
        (4, 'v4.yaml', (), ())
    """
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists() fails for names that no file can have
        raise SchemaMissingError.at(path)
    series = load_series(path if Path(path).is_dir() else Path(path).parent)
    case = _case(series, edited, against)
    old, new = case.old, case.new
    _sound(new, case.source)
    if new.id != old.id:
        message = f"expected schema: {old.id}, got {new.id}"
        raise SchemaError(
            message, code="NQX283", hint="a schema keeps its identity in all versions"
        )
    found = suggest(old, new)
    following = {"version": old.version + 1, "migrations": []}
    new = _reserving(old, new, found).model_copy(update=following)
    if full_fingerprint(new) == full_fingerprint(old.model_copy(update=following)):
        message = f"expected a schema that differs from version {old.version}, got the same"
        raise SchemaError(
            message, code="NQX400", hint="edit the newest file, or name the edited one"
        )
    own = None if case.source is None else Path(case.source.name)
    return Revision(
        id=new.id,
        version=new.version,
        text=_text(new, old.version, found, own),
        file=case.file or (series.folder or Path(path)) / f"v{new.version}.yaml",
        steps=tuple(step_text(step) for each in found for step in each.steps),
        questions=tuple(each.question for each in found if each.question),
        edited=own,
        published=case.published,
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """The version before, the edited schema and its file; ``file`` is the new one, if it is there already."""

    old: Document
    new: Document
    source: Source | None = None
    file: Path | None = None
    published: str | None = None


def _case(series: Series, edited: Document | str | Path | None, against: str) -> _Case:
    if isinstance(edited, Document):
        return _Case(series.head, edited)
    head, source = series.head, series.sources[series.head.version]
    if edited is not None and Path(edited).resolve() != Path(source.name).resolve():
        if Path(edited).resolve() in {
            Path(known.name).resolve() for known in series.sources.values()
        }:
            message = "expected the newest file of the schema, got an earlier version"
            raise SchemaError(
                message,
                code="NQX400",
                file=str(edited),
                hint="edit the newest one, or a copy elsewhere",
            )
        given = read_file(edited)
        return _Case(
            series.head, link(parse_document(given), beside(series.folder or Path())), given
        )
    earlier = [series.documents[version] for version in series.versions if version != head.version]
    try:
        at = Path(source.name)
        before = with_moved(baseline(against, at), at, (series.id,)).series.get(series.id)
    except SchemaError as error:
        if edited is None or not earlier:
            raise _unknown(source, error) from error
        before = None  # the newest file was named: it follows the others
    if before is not None and head.version in before.documents:
        published = published_text(against, at)
        return _Case(before.at(head.version), head, source, published=published)
    if not earlier:
        message = "expected a schema with an earlier version, got a new one"
        raise SchemaError(
            message, code="NQX400", file=source.name, hint="there is nothing to migrate from"
        )
    if source.name.endswith(".json"):
        message = "expected a new version in YAML, got JSON, which has no comments for questions"
        hint = Hint("move the file out of the folder, and pass it as ", Keyword("edited"))
        raise SchemaError(message, code="NQX400", file=source.name, hint=hint)
    return _Case(earlier[-1], head, source, file=Path(source.name))


def _unknown(source: Source, error: SchemaError) -> SchemaError:
    """The error that the former text of an edited file is not known."""
    message = f"expected the former text of the edited file, got: {error.diagnostics[0].message}"
    both = Keyword("against"), ", or the edited file as ", Keyword("edited")
    hint = Hint("pass the former schema as ", *both)
    return SchemaError(message, code="NQX400", file=source.name, hint=hint)


def _sound(document: Document, source: Source | None) -> None:
    """Refuses a schema with errors in names and types: no step could lead there."""
    source = source or Source(f"{document.id}@{document.version}")
    found = [finding for check in CHECKS for finding in check(document)]
    wrong = [
        source.located(finding, key=finding.code in ABOUT_KEYS)
        for finding in found
        if finding.severity == "error" and not finding.path.startswith("$.migrations")
    ]
    if wrong:
        raise SchemaError(wrong)


def _reserving(old: Document, new: Document, found: Iterable[Suggestion]) -> Document:
    """The document with the names reserved that payloads of the old version use and the new one no longer has."""
    answers = [answer for each in found for answer in each.answers[:1]]
    steps: list[Any] = [step for answer in answers for step in answer.steps]
    former = {step.to: step.struct for step in steps if kind(step).renames_struct}
    structs = dict(new.structs)
    for name, struct in new.structs.items():
        before = old.structs.get(former.get(name, name))
        if before is not None:
            aliases = {alias for field in struct.fields.values() for alias in field.aliases}
            taken = {*struct.fields, *struct.reserved, *aliases}
            gone = dict.fromkeys([*before.reserved, *before.stored])
            names = [word for word in gone if word not in taken]
            if names:
                reserved = [*struct.reserved, *names]
                structs[name] = struct.model_copy(update={"reserved": reserved})
    return new.model_copy(update={"structs": structs})


# ---------------------------------------------------------------------------------------------------------------------
# Text.


def _text(document: Document, before: int, found: Iterable[Suggestion], own: Path | None) -> str:
    """The file: the edited text of the author if there is one, else the document written out."""
    data = document.to_shorthand()
    data.pop("migrations", None)
    text = f"{MODELINE}{dump_yaml(data)}"
    if own is not None and own.suffix != ".json":
        kept = _edited(own.read_text(encoding="utf-8-sig"), document)
        text = kept if _means(kept, document) else text
    return "\n".join([text.rstrip("\n"), *_migration(before, found), ""])


def _means(text: str, document: Document) -> bool:
    """True if a text reads as the document; else the edit of the text went wrong."""
    try:
        read = parse_document(read_text(text))
        wanted = document_from_data(document.to_data(), "revision")
    except SchemaError:
        return False
    return full_fingerprint(read) == full_fingerprint(wanted)


def _migration(before: int, found: Iterable[Suggestion]) -> Iterator[str]:
    lines = [line for each in found for line in _lines(each)]
    yield "migrations:"
    yield f"  - from: {before}"
    yield "    steps:" if lines else "    steps: []"
    yield from (f"      {line}" for line in lines)


def _lines(suggestion: Suggestion) -> Iterator[str]:
    """Yields the steps of a suggestion, or its question with the answers in comments."""
    yield from map(step_text, suggestion.steps)
    if not suggestion.question:
        return
    yield f"# nqx: question: {_legible(suggestion.question)}"
    for answer in suggestion.answers:
        yield f"# {_legible(answer.label)}:"
        yield from (f"# {step_text(step)}" for step in answer.steps)
    if suggestion.otherwise:
        yield f"# {_legible(suggestion.otherwise)}"


def _legible(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


#: The migrations of a file, up to the next member or comment without indentation.
_MIGRATIONS = re.compile(r"^migrations:.*?(?=^[^\s-]|\Z)", re.MULTILINE | re.DOTALL)


def _edited(text: str, document: Document) -> str:
    """The text with the version, the reserved names and no migrations."""
    import yaml

    root = yaml.compose(text, Loader=yaml.SafeLoader)  # it was read before, so it is safe and small
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return ""
    members = _members(root)
    version = members["version"][1]
    edits = [(version.start_mark.index, version.end_mark.index, str(document.version))]
    for name, (_, struct) in _members(members["structs"][1]).items():
        edits += _reserved(struct, document.structs[name].reserved)
    for start, end, put in sorted(edits, reverse=True):
        text = f"{text[:start]}{put}{text[end:]}"
    head = "" if "$schema" in text else MODELINE
    return head + _MIGRATIONS.sub("", text)


def _members(mapping: Any) -> dict[str, tuple[Any, Any]]:
    """The nodes of keys and values by name."""
    return {key.value: (key, value) for key, value in mapping.value}


def _reserved(struct: Any, names: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Yields the edit that adds reserved names to a struct: start, end and text."""
    members = _members(struct)
    listed = members["reserved"][1] if "reserved" in members else None
    held = [] if listed is None else listed.value
    known = [item.value for item in held]
    names = [name for name in names if name not in known]
    if not names:
        return
    text = ", ".join(names)
    if listed is None:
        start = members["fields"][0].start_mark
        behind = ", " if struct.flow_style else f"\n{' ' * start.column}"
        yield start.index, start.index, f"reserved: [{text}]{behind}"
    elif not held:
        yield listed.start_mark.index, listed.end_mark.index, f"[{text}]"
    else:
        end = held[-1].end_mark.index
        dash = f"\n{' ' * listed.start_mark.column}- "
        added = f", {text}" if listed.flow_style else dash + dash.join(names)
        yield end, end, added
