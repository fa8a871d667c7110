"""Reports as HTML: one page that needs no other file and no network, about a checkpoint, a schema or two of either.

Example:
    >>> "<h2>Versions</h2>" in report("schemas/vmc_state")
    True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from neuralqx_struct import bundle
from neuralqx_struct.bundle.runs import is_bundle
from neuralqx_struct.errors import Diagnostic, StructError
from neuralqx_struct.evolution.diff import diff
from neuralqx_struct.formats import is_foreign
from neuralqx_struct.manifest import MANIFEST, Limits
from neuralqx_struct.manifest.kinds import STRUCT
from neuralqx_struct.pages import sections
from neuralqx_struct.pages.charts import areas
from neuralqx_struct.pages.sections import Section, page
from neuralqx_struct.places.urls import Options, Place, place_of
from neuralqx_struct.printing import escaped, table, tag
from neuralqx_struct.schema.series import Series, carried_series, load_series
from neuralqx_struct.tools.inspection import Inspection, inspect
from neuralqx_struct.tools.rows import size_text
from neuralqx_struct.tools.validation import validate, verify
from neuralqx_struct.tools.value_differences import diff_values

__all__ = ["report"]


@bundle.read_again
def report(
    path: str | Place,
    other: str | Place | None = None,
    *,
    limits: Limits | None = None,
    trust: Iterable[str] = (),
    storage_options: Options | None = None,
) -> str:
    """A page of HTML about a checkpoint or a schema; it needs no other file and no network.

    A bundle is opened once: the page is about one checkpoint, also while a trainer replaces it.

    Args:
        path: A bundle, a file of another program such as ``model.safetensors``, or a schema file or folder.
        other: A second checkpoint: the page compares the two.
        limits: Sizes above which a checkpoint is refused.
        trust: Packages whose functions ``python`` steps may run, to compare bundles of two versions.
        storage_options: Options of fsspec for URLs, such as keys.

    Returns:
        The page: the tree with statistics and histograms of all arrays, sizes as areas, dims, versions with the changes
        and steps of each, and damage if there is any; of a schema its declarations and versions.

    Raises:
        SerializationError: There is nothing at a path, or its manifest cannot be read. Damaged arrays are part of the page.
        SchemaError: A schema cannot be read.

    Example:
        >>> page = report("tests/golden/format-1/vmc_state_1")
        >>> page.startswith("<!doctype html>")
        True
    """
    place = place_of(path, storage_options)
    if other is None and isinstance(place, Path) and _is_schema(place):
        return _schema(load_series(place))
    places = [place] if other is None else [place, place_of(other, storage_options)]
    with ExitStack() as stack:
        for index, each in enumerate(places):
            if not is_foreign(each):
                places[index] = bundle.around(each)
                stack.enter_context(bundle.kept(places[index], limits))
        if other is None:
            return _checkpoint(limits, places[0])
        return _comparison(limits, trust, places[0], places[1])


def _is_schema(place: Path) -> bool:
    """True for a schema file, and for a folder that is no checkpoint."""
    if place.suffix in (".yaml", ".yml", ".json"):
        return place.name != MANIFEST
    return place.is_dir() and not is_bundle(place) and not is_foreign(place)


def _schema(series: Series) -> str:
    head = series.head
    given = {"newest version": head.version, "versions": len(series.versions), "root": head.root}
    lead = sections.facts({**given, "compatibility": head.compatibility})
    if head.doc:
        lead += tag("p", escaped(head.doc))
    parts = [*sections.declarations(head), sections.versions(series)]
    return page(f"{series.id} (schema)", lead, parts)


def _checkpoint(limits: Limits | None, path: Place) -> str:
    found: list[Diagnostic] = []
    record = inspect(path, stats=True, report=found, limits=limits)
    damage = verify(path, limits=limits)
    good = "every array is whole"
    if record.format is None:
        damage += validate(path, limits=limits)
        held = "with its schema" if record.schema is not None else "with the format"
        good = f"every byte agrees with its checksum, and the manifest {held}"
    parts = [sections.findings("State", damage, good), *sections.content(record)]
    document = {} if record.format is not None else bundle.read_manifest(path, limits=limits)
    parts += _declared(document)
    if record.metadata:
        rows = ([escaped(key), escaped(value)] for key, value in record.metadata.items())
        parts.append(Section("Metadata", table(("name", "value"), rows)))
    return page(Path(record.file).name, _lead(record), parts)


def _lead(record: Inspection) -> str:
    schema = record.schema
    given: dict[str, object] = {
        "kind": record.format or "bundle",
        "arrays": record.arrays,
        "size": size_text(record.nbytes),
        "nodes": len(record.rows) + record.omitted,
    }
    if schema is not None:
        given |= {"schema": schema["id"], "version": schema["version"]}
    if record.writer is not None:
        given["written by"] = f"{record.writer['name']} {record.writer['version']}"
    return sections.facts(given)


def _declared(document: Mapping[str, Any]) -> Iterator[Section]:
    """The declarations of a bundle's own schema, and its versions."""
    written = document.get("schema")
    if written is None:
        return
    try:
        series = carried_series(document)[written["id"]]
        head = series.at(written["version"])
    except (KeyError, StructError):  # the section on validity has the reason
        return
    yield from sections.declarations(head, _sizes(head, document["manifest"]))
    yield sections.versions(series, written["version"])


def _sizes(document: Any, root: Any) -> dict[str, int]:
    """The sizes that the root of a payload shows."""
    from neuralqx_struct.schema.conformance import see_node, size_scopes

    if not STRUCT.matches(root):
        return {}
    scopes = size_scopes(document, document.root, root, see_node)
    return scopes[()].sizes() if () in scopes else {}


def _comparison(limits: Limits | None, trust: Iterable[str], old: Place, new: Place) -> str:
    found = diff_values(old, new, limits=limits, trust=trust)
    records = [inspect(each, limits=limits) for each in (old, new)]
    parts = [sections.differences(found)]
    if found.unread:
        parts.append(sections.findings("Damage", found.unread, ""))
    if all(record.schema is not None for record in records):
        parts.append(Section("Schemas", sections.changes(diff(old, new, limits=limits))))
    for title, record in zip(("First", "Second"), records, strict=True):
        parts.append(Section(title, _lead(record) + areas(record.rows)))
    return page(f"{old.name} and {new.name}", "", parts)
