"""References to earlier schemas, as ``--against`` takes them, and waivers of findings about them.

:func:`baseline` reads the schemas of a reference: a schema folder, a file, a folder of such folders; ``git:REVISION``, the
same folder at that revision; a bundle, for the versions that it carries; a lock file, which has only fingerprints.

Waivers accept findings of `breaking`, each for a reason that everybody can read. ``waivers.yaml`` is beside the schemas' folders::

    waivers:
      - {code: NQX415, schema: lab.net, path: $.structs.Net.fields.b, reason: version 2 was never released}

Example:
    >>> baseline("schemas", Path("schemas")).series["neuralqx.vmc_state"].versions
    (1, 2, 3)
    >>> Accepted(waivers=(Waiver(code="NQX415", reason="never released"),)).waivers[0].path is None
    True
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, StrictStr, ValidationError

from neuralqx_struct.bundle import read_manifest
from neuralqx_struct.errors import Diagnostic, SchemaError
from neuralqx_struct.manifest import Limits
from neuralqx_struct.places.names import entries, is_hidden
from neuralqx_struct.places.urls import Options, place_of
from neuralqx_struct.schema.lock import LOCK_NAME, WAIVERS_NAME, read_lock
from neuralqx_struct.schema.migration import Declaration
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.series import (
    SUFFIXES,
    SchemaMissingError,
    Series,
    carried_series,
    load_series,
    series_of,
)
from neuralqx_struct.schema.text.loader import read_file, read_text

_GIT = "git:"


@dataclass(frozen=True, slots=True)
class Baseline:
    """Earlier schemas.

    Attributes:
        name: The reference as it was given.
        series: The schemas by identity.
        locked: Fingerprints of frozen versions by folder, where only a lock file is known.
    """

    name: str
    series: Mapping[str, Series] = field(default_factory=dict)
    locked: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


def baseline(
    reference: str,
    path: Path,
    *,
    limits: Limits | None = None,
    storage_options: Options | None = None,
) -> Baseline:
    """The earlier schemas that a reference names.

    Args:
        reference: A path, ``git:REVISION``, a bundle or its URL, or a lock file.
        path: The schemas that are judged; ``git:`` reads the same path.
        limits: Sizes above which a bundle is refused.
        storage_options: Options of fsspec for the URL of a bundle, such as keys.

    Raises:
        SchemaError: NQX404: there is nothing at the reference; NQX400: git fails; all errors in the
            files there.
    """
    if reference.startswith(_GIT):
        return Baseline(reference, _at_revision(reference.removeprefix(_GIT), path))
    where = place_of(reference, storage_options)
    if isinstance(where, Path):
        if not where.exists():
            raise SchemaMissingError.at(reference)
        if where.name == LOCK_NAME:
            return Baseline(reference, locked=read_lock(where.parent))
        is_file = where.suffix == ".zip" or where.name == "manifest.json"
        if not is_file and not (where / "manifest.json").is_file():
            return Baseline(reference, schemas_below(where))
    name = str(where)  # of a URL without its keys
    carried = carried_series(read_manifest(where, limits=limits))
    if not carried:
        raise SchemaError(
            "expected a bundle that holds its schema, got one without",
            code="NQX404",
            file=name,
            hint="it was saved from plain Python classes; compare with the schema's files",
        )
    return Baseline(name, carried)


def with_moved(before: Baseline, path: Path, identities: Iterable[str]) -> Baseline:
    """The earlier schemas, of a revision of git also those that were in another folder of the repository.

    Args:
        before: The schemas at the same path.
        path: The schemas that are judged.
        identities: Their identities.
    """
    if not before.name.startswith(_GIT):
        return before
    found, revision = dict(before.series), before.name.removeprefix(_GIT)
    for identity in {*identities} - found.keys():
        found |= _elsewhere(revision, path, identity)
    return replace(before, series=found)


def published_text(reference: str, file: Path) -> str | None:
    """The text of a file at a reference, or None if it has none there."""
    if reference.startswith(_GIT):
        revision = reference.removeprefix(_GIT)
        return ask_git(file.parent, "show", f"{revision}:./{file.name}").decode("utf-8-sig")
    there = Path(reference) / file.name
    return there.read_text(encoding="utf-8-sig") if there.is_file() else None


def schemas_below(path: Path) -> dict[str, Series]:
    """The schemas of a file, a schema folder, or a folder of schema folders, by identity.

    Raises:
        SchemaError: NQX404: there are none; all errors in the files.
    """
    if not path.exists():
        raise SchemaMissingError.at(path)
    folders = [path]
    if path.is_dir() and not is_schema_folder(path):
        folders = [
            inner for inner in entries(path) if inner.is_dir() and is_schema_folder(inner)
        ] or [path]
    found = [load_series(folder) for folder in folders]
    return {series.id: series for series in found}


def folder_of_schemas(path: Path) -> Path:
    """The folder in which the folders of schemas lie, from the path of some, of one, or of one version."""
    folder = path if path.is_dir() else path.parent
    return folder.absolute().parent if is_schema_folder(folder) else folder


def is_schema_folder(folder: Path) -> bool:
    """True if files are named after versions; published JSON Schemas lie in folders without."""
    return any(p.suffix in SUFFIXES and _is_version(p.name) for p in entries(folder))


def _at_revision(revision: str, path: Path) -> dict[str, Series]:
    """The schemas that a path held at a revision of its git repository, a file's those of its folder; none if it was not there."""
    if not revision or revision.startswith("-"):
        raise SchemaError(
            f"expected a revision behind git:, got {revision!r}",
            code="NQX400",
            hint="such as git:main",
        )
    folder = path if path.is_dir() else path.parent
    wanted = f"the revision {revision!r} in the repository"
    commit = f"{revision}^{{commit}}"
    ask_git(folder, "rev-parse", "--verify", "--quiet", commit, wanted=wanted)
    names = _listed(folder, "ls-tree", "-r", "-z", "--name-only", revision, "--", "./")
    groups = {
        parent: files
        for parent, files in _by_folder(names).items()
        if "/" not in parent and (path.is_dir() or not parent)
    }
    if path.is_dir():
        groups = {parent: files for parent, files in groups.items() if any(map(_is_version, files))}
        groups = {"": groups[""]} if "" in groups else groups
    found = [_read_group(folder, f"{revision}:./", files) for files in groups.values()]
    return {series.id: series for series in found}


def _elsewhere(revision: str, path: Path, identity: str) -> dict[str, Series]:
    """A schema that another folder of the repository held at a revision: preferably one that is gone, as after a move."""
    top = Path(
        ask_git(path if path.is_dir() else path.parent, "rev-parse", "--show-toplevel")
        .decode()
        .rstrip("\n")
    )
    names = _listed(top, "ls-tree", "-r", "-z", "--name-only", revision)
    groups = _by_folder(filter(_is_version, names))
    for _, files in sorted(groups.items(), key=lambda each: ((top / each[0]).is_dir(), each[0])):
        if identity.encode() not in ask_git(top, "show", f"{revision}:{files[0]}"):
            continue
        with suppress(SchemaError):  # files with errors, as tests have
            series = _read_group(top, f"{revision}:", files)
            if series.id == identity:
                return {identity: series}
    return {}


def _listed(folder: Path, *arguments: str) -> list[str]:
    """The names that a command of git lists, which may be no UTF-8."""
    return os.fsdecode(ask_git(folder, *arguments)).split("\0")


def _by_folder(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of schema files, by folder; those of systems and editors are left out."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if Path(name).suffix in SUFFIXES and not any(map(is_hidden, name.split("/"))):
            groups.setdefault(name.rpartition("/")[0], []).append(name)
    return groups


def _read_group(folder: Path, at: str, names: list[str]) -> Series:
    """The schema in some files at a revision, ``at`` in front of each name."""
    sources = [
        read_text(
            ask_git(folder, "show", f"{at}{name}"),
            f"{at.replace('./', '')}{name}",
            format="json" if name.endswith(".json") else "yaml",
        )
        for name in names
    ]
    documents = [parse_document(source) for source in sources]
    return series_of(
        documents, {d.version: source for d, source in zip(documents, sources, strict=True)}
    )


def _is_version(name: str) -> bool:
    """True for a file that is named after a version."""
    stem = Path(name).stem.removesuffix(".struct")
    return stem[:1] == "v" and stem[1:].isdecimal()


def ask_git(folder: Path, *arguments: str, wanted: str = "an answer of git") -> bytes:
    """The output of a git command in the repository around a folder.

    Raises:
        SchemaError: NQX400: there is no git, no repository, or no answer.
    """
    try:
        done = subprocess.run(  # noqa: S603 - fixed words; values of the user come last
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the git of the user's own PATH
            check=False,
            capture_output=True,
            # A hook of git has variables that name its own repository, index and work tree.
            env={n: v for n, v in os.environ.items() if not n.startswith("GIT_")} | {"LC_ALL": "C"},
        )
    except OSError as error:
        raise SchemaError(
            f"expected git, got: {error.strerror}", code="NQX400", hint="install git"
        ) from error
    if done.returncode != 0:
        said = next(iter(done.stderr.decode(errors="replace").strip().splitlines()), "")
        message = f"expected {wanted}, got {said or 'none'}"
        hint = "list its revisions with `git log --all --oneline`; CI may have to fetch them first (`fetch-depth: 0`)"
        if "not a git repository" in said:
            message = "expected a folder in a git repository, got one outside"
            hint = "compare with a folder, a lock file or a bundle instead of `git:`, or run `git init` and commit the schemas"
        raise SchemaError(message, code="NQX400", file=str(folder), hint=hint)
    return done.stdout


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
