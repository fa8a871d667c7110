"""The foreign format ``nqxpack``: the ``.nk`` files and folders of the package nqxpack, which holds states of NetKet.

Such a file is a zip whose members are stored: trees of Flax's msgpack and ``.npy`` arrays below ``assets/``, a description of
the object as JSON, which names the classes that nqxpack calls, and the versions of the packages that wrote it. Here the arrays are
read, and the plain values of the description; nothing that it names is imported.

An array is named by the place of its member, its own name and the keys in it, such as ``state.variables.params.kernel``; a value
by its place in ``object``, such as ``object.sampler.n_chains``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from neuralqx_struct.errors import Diagnostic, SerializationError, UntrustedError
from neuralqx_struct.formats.archive import STORED, Member, damaged, read_directory
from neuralqx_struct.formats.msgpack import read_tree
from neuralqx_struct.formats.npz import npy_arrays
from neuralqx_struct.formats.ranges import Ranges
from neuralqx_struct.formats.store import checksum_finding
from neuralqx_struct.formats.table import (
    Candidate,
    ForeignFile,
    Format,
    Plain,
    Reading,
    joined,
    mapped,
)
from neuralqx_struct.manifest.payload import ForeignArray
from neuralqx_struct.manifest.text import parse_manifest
from neuralqx_struct.places.requests import downloaded
from neuralqx_struct.places.urls import Place, RemotePath
from neuralqx_struct.printing import brief_plain

_SUFFIX: Final = ".nk"
_ASSETS: Final = "assets"
_METADATA: Final = "metadata.json"
#: The description of the object; the second name is that of the format up to 1.1.
_OBJECTS: Final = ("object.json", "config.json")
#: The major version of the format that is known.
_MAJOR: Final = 1
#: The structure of the arrays, which their names show too.
_STRUCTURE: Final = "variables_structure"
#: The key of the class that an object is made by.
_TARGET: Final = "_target_"
_FIRST: Final = slice(30, 30 + len(_ASSETS) + 1)  # of a zip: the name of its first member


class _Part(NamedTuple):
    """A member of the file, or a file of the folder; its checksum if there is one."""

    data: memoryview
    crc32: int | None


def _members(path: Path) -> dict[str, _Part]:
    """The bytes of all members by name.

    Raises:
        UntrustedError: One is compressed.
    """
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file() and not each.is_symlink())
        return {each.relative_to(path).as_posix(): _Part(mapped(each), None) for each in files}
    view = mapped(path)
    found: dict[str, _Part] = {}
    for member in read_directory(view, any_names=True):
        _require_stored(member)
        found[member.name] = _Part(view[member.start : member.start + member.size], member.crc32)
    return found


def _require_stored(member: Member) -> None:
    if member.method != STORED:
        message = f"expected members that are stored, as nqxpack writes them, got {member.name!r} compressed"
        raise UntrustedError(message, code="NQX508", hint="unpack the file, and pass the folder")


def _keys(name: str) -> list[str]:
    """The keys by which the content of a member is named: the folders that it is in, and its name without suffix."""
    place = PurePosixPath(name)
    parts = [part for part in place.parts[:-1] if part != "/"]
    return [*(parts[1:] if parts[:1] == [_ASSETS] else parts), place.stem]


def _opened(path: Place, reading: Reading) -> ForeignFile:
    place: Path
    close: Callable[[], object]
    if isinstance(path, RemotePath):
        place, close = downloaded(path, folder=path.is_dir())
    else:
        place, close = path, int
    try:
        return _read(path, _members(place), reading, close)
    except BaseException:
        close()
        raise


def _read(
    path: Place, members: Mapping[str, _Part], reading: Reading, close: Callable[[], object]
) -> ForeignFile:
    metadata = _json(members, _METADATA, reading)
    version = metadata.get("format_version")
    if metadata.get("format") != "NetKet" or not isinstance(version, (int, float)):
        message = f"expected the format of nqxpack in {_METADATA}, got {brief_plain(metadata.get('format'))}"
        raise damaged(message)
    if not _MAJOR <= version < _MAJOR + 1:
        message = f"expected version {_MAJOR} of the format of nqxpack, got {version}"
        raise SerializationError(message, code="NQX614", hint="load it with nqxpack")
    arrays: dict[str, ForeignArray] = {}
    values: dict[str, Plain] = {}
    homes: dict[str, str] = {}
    for name, part in members.items():
        kind = _READERS.get(PurePosixPath(name).suffix)
        if kind is not None:
            inside, beside = kind(path, Ranges.of(part.data), _keys(name), reading)
            for each in (*inside, *beside):
                _require_new(each, homes)
                homes[each] = name
            arrays |= inside
            values |= beside
    described = next((name for name in _OBJECTS if name in members), _OBJECTS[0])
    for keys, value in _plain(_json(members, described, reading), ("object",)):
        name = joined(keys, reading.separator)
        _require_new(name, homes)
        homes[name] = described
        values[name] = value
    packages = metadata.get("packages")
    known = packages.items() if isinstance(packages, dict) else ()
    texts = {name: text for name, text in known if text and isinstance(text, str)}
    return ForeignFile(
        path=str(path),
        format=NQXPACK.name,
        arrays=arrays,
        values=values,
        metadata={"format": str(version), **texts},
        check=partial(_damage, members, homes),
        close=close,
    )


def _json(members: Mapping[str, _Part], name: str, reading: Reading) -> dict[str, Any]:
    """A JSON object of the file.

    Raises:
        IntegrityError: It is missing or damaged.
    """
    if name not in members:
        raise damaged(f"expected {name} in a file of nqxpack, got none")
    part = members[name]
    if part.crc32 is not None and zlib.crc32(part.data) != part.crc32:
        raise damaged(f"expected {name} with the checksum of the zip, got another one")
    return parse_manifest(bytes(part.data), limits=reading.limits)


def named_objects(path: Path, reading: Reading) -> set[str]:
    """The names of all classes and functions that nqxpack would look up, and call, to load a file."""
    members = _members(path)
    name = next((name for name in _OBJECTS if name in members), _OBJECTS[0])
    found: set[str] = set()
    todo: list[Any] = [_json(members, name, reading)]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            todo += (inner for key, inner in item.items() if key != _TARGET)
            if _TARGET in item:
                found.add(str(item[_TARGET]).removeprefix("#"))
        elif isinstance(item, list):
            todo += item
        elif isinstance(item, str) and item.startswith("<") and item.endswith(">"):
            found.add(item[1:-1].strip())
    return found


def _plain(item: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Plain]]:
    """Yields the plain values of the description of an object, with their keys."""
    if isinstance(item, dict):
        for key, inner in item.items():
            if key != _STRUCTURE:
                yield from _plain(inner, (*keys, key))
    elif isinstance(item, list):
        for place, inner in enumerate(item):
            yield from _plain(inner, (*keys, str(place)))
    else:
        yield keys, item


def _require_new(name: str, homes: Mapping[str, str]) -> None:
    if name in homes:
        message = f"expected each name once, got {name!r} twice"
        raise UntrustedError(message, code="NQX509")


def _damage(members: Mapping[str, _Part], homes: Mapping[str, str], name: str) -> Diagnostic | None:
    """The damage of the member that has an array."""
    part = members[homes[name]]
    found = 0 if part.crc32 is None else zlib.crc32(part.data)
    return checksum_finding(name, found, part.crc32)


_Content = tuple[Mapping[str, ForeignArray], Mapping[str, Plain]]


def _of_msgpack(_: Place, data: Ranges, keys: list[str], reading: Reading) -> _Content:
    return read_tree(data, reading, tuple(keys))[1:]


def _of_npy(path: Place, data: Ranges, keys: list[str], reading: Reading) -> _Content:
    return npy_arrays(path, data, joined(keys, reading.separator)).arrays, {}


_READERS: Final[Mapping[str, Callable[[Place, Ranges, list[str], Reading], _Content]]] = {
    ".msgpack": _of_msgpack,
    ".npy": _of_npy,
}


def _recognises(found: Candidate) -> bool:
    """Whether a file or folder has the suffix of nqxpack, or a zip begins with assets."""
    named = found.path.name.endswith(_SUFFIX)
    if found.names is not None:
        return named and _METADATA in found.names and not found.names.isdisjoint(_OBJECTS)
    return named or (found.start[:2] == b"PK" and found.start[_FIRST] == f"{_ASSETS}/".encode())


NQXPACK: Final = Format(
    name="nqxpack",
    title="a file of nqxpack",
    suffix=_SUFFIX,
    recognises=_recognises,
    opened=_opened,
    write=None,
    folder=lambda _: False,
    metadata=False,
)
