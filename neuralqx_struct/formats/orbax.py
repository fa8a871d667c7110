"""The foreign format ``orbax``: a checkpoint folder of Orbax, v0 or v1, read without the classes that wrote it.

Names come from the metadata of the tree, arrays from tensorstore: zarr 2 or 3, in OCDBT or in plain folders. Scalars, text
and None are values. Opening reads the description of each array, and the values. Needs the extra ``orbax``, and no JAX.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from neuralqx_struct.dtypes import dtype_name, dtype_named
from neuralqx_struct.errors import (
    READ_MORE,
    Diagnostic,
    IntegrityError,
    SerializationError,
    StructError,
    UntrustedError,
    shell_word,
)
from neuralqx_struct.formats.archive import damaged
from neuralqx_struct.formats.orbax_layout import STEP_METADATA, TREE_METADATA, Files, package
from neuralqx_struct.formats.orbax_remote import far_files
from neuralqx_struct.formats.orbax_store import ORBAX_STORE
from neuralqx_struct.formats.store import about, about_each, require_possible
from neuralqx_struct.formats.table import (
    MOST_EXPANSION,
    Candidate,
    ForeignFile,
    Format,
    Plain,
    Reading,
    joined,
    unreadable,
)
from neuralqx_struct.manifest import MANIFEST, Findings, raise_findings
from neuralqx_struct.manifest.payload import ForeignArray, Region
from neuralqx_struct.manifest.text import parse_manifest
from neuralqx_struct.places.names import entries
from neuralqx_struct.places.steps import UNFINISHED, contents
from neuralqx_struct.places.urls import Place, RemotePath
from neuralqx_struct.printing import brief_plain, listed

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_TEXTS: Final = "_strings.json"
_COMPLETE: Final = "store_array_data_equal_to_fill_value"
_OCDBT: Final = "manifest.ocdbt"
_ROOTS: Final = {TREE_METADATA, STEP_METADATA, _OCDBT, "orbax.checkpoint"}
_ZARR: Final = (".zarray", "zarr.json")  # in the folder of each array without OCDBT
_SPECIAL: Final = {"", ".", ".."}
_AHEAD: Final = 64  # arrays that are opened at a time


class _Entry(NamedTuple):
    """A leaf of the tree: its keys, and the kind of its value."""

    keys: tuple[str, ...]
    kind: str

    @property
    def place(self) -> str:
        """The key of its array in the checkpoint."""
        return ".".join(self.keys)


# The folder and its metadata


def _item(path: Place) -> Place:
    """The folder of the tree at a path: itself, or its only item that is a tree.

    Raises:
        SerializationError: It has several such items or none; names them, or the steps.
        IntegrityError: The checkpoint was not finished, or lacks the names of its arrays.
    """
    if UNFINISHED in path.name:
        message = f"expected a finished checkpoint, got one that is still named {UNFINISHED}"
        raise IntegrityError(message, code="NQX408", hint="take the step before it")
    if (path / TREE_METADATA).is_file():
        return path
    found: list[Any] = [*path.iterdir()] if isinstance(path, RemotePath) else entries(path)
    inner = [each for each in found if each.is_dir() and not each.is_symlink()]
    inner.sort(key=lambda each: str(each.name))
    items: list[Place] = [entry for entry in inner if (entry / TREE_METADATA).is_file()]
    if len(items) == 1:
        return items[0]
    bundles = None if items else contents(path, MANIFEST)
    if bundles is not None:
        message = f"expected a checkpoint of one tree of arrays, got {bundles.text}"
        raise SerializationError(message, code="NQX621", hint=f"open {shell_word(bundles.last)}")
    steps = [entry for entry in inner if entry.name.isdecimal()]
    held = (each / name for each in inner for name in _ZARR)
    if not items and ((path / _OCDBT).is_file() or any(each.is_file() for each in held)):
        message = (
            f"expected {TREE_METADATA} with the names of the arrays, got a checkpoint without it"
        )
        hint = f"restore {TREE_METADATA} from a copy of the checkpoint, or save it again with Orbax"
        raise IntegrityError(message, code="NQX409", hint=hint)
    known = items or sorted(steps, key=lambda step: int(step.name[:20])) or inner
    what = "trees" if items else "steps" if steps else "items"
    names = listed(entry.name for entry in known) or "none"
    message = f"expected a checkpoint of one tree of arrays, got a folder of {what}: {names}"
    hint = f"open {shell_word(known[-1])}" if known else "take another step, or restore this one"
    raise SerializationError(message, code="NQX621", hint=hint)


def _entries(tree: Any, most: int) -> list[_Entry]:
    """The leaves that the metadata of a tree list.

    Raises:
        IntegrityError: They list something else: all problems.
        UntrustedError: A key leads out of the folder.
    """
    if type(tree) is not dict:
        raise damaged(
            f"expected tree_metadata with the leaves in {TREE_METADATA}, got {brief_plain(tree)}"
        )
    if len(tree) > most:
        message = f"expected at most {most} leaves in a checkpoint, got {len(tree)}"
        raise SerializationError(message, code="NQX005", hint=READ_MORE)
    found = Findings()
    entries: dict[str, _Entry] = {}
    for text, facts in tree.items():
        path = ["tree_metadata", text]
        entry = _entry(facts)
        if entry is None:
            found.add("NQX408", path, "expected keys and a kind of value, got something else")
        elif "\0" in entry.place or not _SPECIAL.isdisjoint(entry.place.split("/")):
            found.add("NQX503", path, "expected keys that stay in the folder, got others")
        elif entry.place in entries:
            message = f"expected one leaf at {entry.place!r}, got two\ntheir keys joined are alike"
            found.add("NQX408", path, message)
        else:
            entries[entry.place] = entry
    raise_findings(found)
    return list(entries.values())


def _entry(facts: Any) -> _Entry | None:
    """The leaf that an entry of the metadata describes; None if it describes none."""
    try:
        keys = tuple(part["key"] for part in facts["key_metadata"])
        value = facts["value_metadata"]
        kind = "empty" if value.get("skip_deserialize") else value["value_type"]
        is_none = value["value_type"] == "None"
    except (TypeError, KeyError, AttributeError):
        return None
    if not all(type(text) is str for text in (*keys, kind)):
        return None
    return _Entry(keys, "none" if is_none else kind)


# Arrays


class _Folder:
    """An open checkpoint.

    Args:
        files: Its files.
        reading: Options, with sizes above which it is refused.

    Attributes:
        entries: The leaves of its tree.
        texts: Text values by the keys of their leaves.
    """

    def __init__(self, files: Files, reading: Reading) -> None:
        self._files, self._limits = files, reading.limits
        self._stored = files.stored  # nothing is opened before all are found to be plain files
        self._tensorstore = package("tensorstore")
        self._ocdbt = files.has(_OCDBT)
        self._context = self._tensorstore.Context()  # by which its arrays share the open database
        document = self.json(TREE_METADATA)
        self.entries = _entries(document.get("tree_metadata"), self._limits.nodes)
        self.texts = self.json(_TEXTS) if files.has(_TEXTS) else {}
        self._request = {
            "driver": "zarr3" if document.get("use_zarr3") is True else "zarr",
            # Such a checkpoint has every chunk, so one without data was lost.
            "fill_missing_data_reads": document.get(_COMPLETE) is not True,
        }

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file of Orbax.

        Raises:
            IntegrityError: It is no JSON.
        """
        with self._files.faults():
            data = self._files.content(name, self._limits.manifest_bytes + 1)
        try:
            return parse_manifest(data, limits=self._limits)
        except SerializationError as error:
            reason = error.diagnostics[0].message
            raise damaged(f"expected JSON in {name}, got other text\n{reason}") from error

    def asked(self, entry: _Entry) -> Any:
        """Requests the description of an array; returns its future."""
        place = f"{entry.place}/"
        where = self._files.ocdbt(place) if self._ocdbt else self._files.driver(place)
        with self._files.faults(entry.place):
            request = {**self._request, "kvstore": where}
            return self._tensorstore.open(request, context=self._context, open=True, read=True)

    def array(self, name: str, answer: Any) -> ForeignArray:
        """An array by its description, all of whose numbers are checked."""
        with self._files.faults(name):
            opened = answer.result()
        code, shape = str(opened.dtype.name), tuple(opened.shape)
        try:
            dtype = dtype_named(code)
        except SerializationError:
            read = unreadable(name, code, "a dtype of numpy or ml_dtypes", "convert it with Orbax")
            return ForeignArray(code, shape, read)
        require_possible(shape, dtype.itemsize)
        chunk = prod(opened.chunk_layout.read_chunk.shape or ())
        nbytes = max(prod(shape), chunk) * dtype.itemsize
        if nbytes > self._limits.full_bytes and nbytes > MOST_EXPANSION * self._stored:
            expected = f"expected at most {self._limits.full_bytes} bytes"
            message = f"{expected}, got {self._stored} in all files that expand to {nbytes}"
            raise UntrustedError(about("NQX505", name, message, READ_MORE))

        def part(region: Region) -> Array:
            with self._files.faults(name):
                made: Array = opened[region].read().result()
            made.flags.writeable = False
            return made

        whole = tuple(slice(0, size) for size in shape)
        return ForeignArray(dtype_name(dtype), shape, partial(part, whole), part)


def _opened(path: Place, reading: Reading) -> ForeignFile:
    item = _item(path)
    files = far_files(item) if isinstance(item, RemotePath) else Files(item)
    try:
        found = _read(path, files, reading)
    except BaseException:
        files.close()
        raise
    return replace(found, close=files.close)


def _read(path: Place, files: Files, reading: Reading) -> ForeignFile:
    folder = _Folder(files, reading)
    found: list[Diagnostic] = []
    arrays: dict[str, ForeignArray] = {}
    values: dict[str, Plain] = {}
    stored = (entry for entry in folder.entries if entry.kind not in _NOT_STORED)
    requests = ((entry, folder.asked(entry)) for entry in stored)
    coming = deque(islice(requests, _AHEAD))
    for entry in folder.entries:
        name = joined(entry.keys, reading.separator)
        try:
            if entry.kind in _NOT_STORED:
                values |= _NOT_STORED[entry.kind](name, entry, folder.texts)
                continue
            array = folder.array(name, coming.popleft()[1])
            coming.extend(islice(requests, 1))
            if entry.kind == "scalar":
                values[name] = _number(name, array)
            else:
                arrays[name] = array
        except StructError as error:
            found += [d if d.path else about_each(name, error)[0] for d in error.diagnostics]
    raise_findings(found)
    return ForeignFile(path=str(path), format=ORBAX.name, arrays=arrays, values=values)


def _number(name: str, array: ForeignArray) -> Plain:
    """A plain number, which is stored as an array without dimensions."""
    if array.shape:
        message = f"expected a number, got {array.dtype}{list(array.shape)}"
        raise IntegrityError(about("NQX412", name, message))
    number: Plain = array.read().item()
    return number


def _text(name: str, entry: _Entry, texts: Mapping[str, Any]) -> dict[str, Plain]:
    """A text, which is stored in a file of all texts."""
    found = texts.get(entry.place)
    if type(found) is not str:
        message = f"expected a text in {_TEXTS}, got {brief_plain(found)}"
        raise IntegrityError(about("NQX409", name, message))
    return {name: found}


#: Kinds of leaves that have no array, and the values that they are: empty containers are none.
_NOT_STORED: Final[Mapping[str, Callable[[str, _Entry, Mapping[str, Any]], dict[str, Plain]]]] = {
    "none": lambda name, *_: {name: None},
    "empty": lambda *_: {},
    "string": _text,
}


def _recognises(found: Candidate) -> bool:
    """Whether a folder has one of Orbax's own files, or has steps that do."""
    names = found.names or frozenset()
    if not names.isdisjoint(_ROOTS):
        return True
    step = next((name for name in names if name.isdecimal()), None)
    return step is not None and (found.path / step / STEP_METADATA).is_file()


ORBAX: Final = Format(
    name="orbax",
    title="a checkpoint of Orbax",
    suffix="",
    recognises=_recognises,
    opened=_opened,
    write=None,
    folder=lambda _: True,
    metadata=False,
    store=ORBAX_STORE,
    whole=lambda names: not {TREE_METADATA, _OCDBT}.isdisjoint(names),
)
