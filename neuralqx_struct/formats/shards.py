"""Shards of a safetensors checkpoint: several files in one folder, and the index that names the file of each array.

Example:
    >>> arrays = {name: ForeignArray("uint8", (3,), lambda: None) for name in "abc"}
    >>> index_of(arrays, {}, 6).shards
    {'model-00001-of-00002.safetensors': ['a', 'b'], 'model-00002-of-00002.safetensors': ['c']}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neuralqx_struct.errors import (
    Diagnostic,
    IntegrityError,
    SerializationError,
    UntrustedError,
)
from neuralqx_struct.formats.store import about
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.payload import ForeignArray
from neuralqx_struct.manifest.text import parse_manifest
from neuralqx_struct.places.names import shown_names
from neuralqx_struct.places.urls import Place, RemotePath
from neuralqx_struct.printing import listed

SUFFIX: Final = ".safetensors"
INDEX: Final = ".safetensors.index.json"
_USUAL_INDEX: Final = f"model{INDEX}"
_MOST_INDEX: Final = 100_000_000  # bytes; that of a header
# A name that leads nowhere but to a file in its folder.
_PLAIN: Final = re.compile(r"(?!\.)[^/\\:\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class Index:
    """The index of a folder of shards.

    Attributes:
        shards: The arrays of each file, by the name of the file.
        text: The content of the index file; empty if one file has all arrays.
        name: The name of the index file.
    """

    shards: Mapping[str, list[str]]
    text: str
    name: str = _USUAL_INDEX

    def differences(self, file: str, found: Collection[str]) -> Iterator[Diagnostic]:
        """Yields a finding for each array that only the index, or only the file has."""
        expected = set(self.shards[file])
        for name in sorted(expected.difference(found)):
            message = f"expected an array of this name in {file}, got none"
            yield about("NQX409", name, message)
        for name in sorted(set(found) - expected):
            message = f"expected arrays of the index alone in {file}, got one that it does not name"
            yield about("NQX410", name, message, "restore the index, or write it again")


def single_or_index(path: Place) -> tuple[str, Place]:
    """The name and the place of the file to read for a path: of a folder its index, or its only safetensors file.

    Raises:
        SerializationError: A folder has several of them.
    """
    if not path.is_dir():
        return path.name, path
    present = path.names() if isinstance(path, RemotePath) else shown_names(os.listdir(path))  # noqa: PTH208 - names alone
    for suffix in (INDEX, SUFFIX):
        names = sorted(name for name in present if name.endswith(suffix))
        if len(names) == 1:
            return names[0], beside(path, names[0])
        if names:
            message = f"expected one file that ends in {suffix}, got {listed(names)}"
            raise SerializationError(message, code="NQX620", hint="pass the path of one of them")
    message = "expected a safetensors file in the folder, got none"
    raise SerializationError(message, code="NQX620")


def beside(folder: Place, name: str) -> Place:
    """The place of a file in a folder: a plain file.

    In the cache of Hugging Face it is a link to the folder of all files of the same model.

    Raises:
        UntrustedError: It is a link to any other place.
    """
    if isinstance(folder, RemotePath):
        return folder / name
    path = folder / name
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.parent == Path(os.path.realpath(folder.parent.parent / "blobs")):
        return target
    message = "expected a plain file, got a link that leads out of the folder"
    raise UntrustedError(message, code="NQX504")


def require_small(size: int) -> int:
    """The size of an index, which is read whole.

    Raises:
        IntegrityError: It is too large.
    """
    if size <= _MOST_INDEX:
        return size
    message = f"expected an index of at most {_MOST_INDEX} bytes, got {size}"
    raise IntegrityError(message, code="NQX506")


def read_index(content: memoryview) -> Index:
    """The index in the content of its file.

    Raises:
        IntegrityError: It is no index.
        UntrustedError: It names files that are not beside it.
    """
    data = bytes(content)
    try:
        document = parse_manifest(data, limits=Limits(manifest_bytes=_MOST_INDEX, depth=3))
    except SerializationError as error:
        reason = error.diagnostics[0].message
        message = f"expected the index of safetensors files, got other text\n{reason}"
        raise IntegrityError(message, code="NQX408") from None
    files = document.get("weight_map")
    if type(files) is not dict or any(type(file) is not str for file in files.values()):
        message = "expected the file of each array in weight_map, got something else"
        raise IntegrityError(message, code="NQX408")
    shards: dict[str, list[str]] = {file: [] for file in sorted(set(files.values()))}
    outside = [file for file in shards if not (_PLAIN.fullmatch(file) and file.endswith(SUFFIX))]
    if outside:
        message = f"expected names of {SUFFIX} files beside the index, got {listed(outside)[:200]}"
        raise UntrustedError(message, code="NQX503")
    for name, file in files.items():
        shards[file].append(name)
    return Index(shards, data.decode())


def index_of(
    arrays: Mapping[str, ForeignArray], form: Mapping[str, Any], most: int | None
) -> Index:
    """The shards for arrays: those of the file that is written again if it had the same arrays, else new ones.

    Args:
        arrays: The arrays, in their order.
        form: The form of that file; see :class:`~neuralqx_struct.formats.table.ForeignFile`.
        most: Bytes of arrays in one new shard; larger arrays have their own.
    """
    total = sum(array.nbytes for array in arrays.values())
    text, file = form.get("index"), form.get("name")
    if isinstance(text, str) and isinstance(file, str):
        given = read_index(memoryview(text.encode()))
        named = {name for names in given.shards.values() for name in names}
        plain = _PLAIN.fullmatch(file) and file.endswith(INDEX)
        if named == set(arrays) and form.get("nbytes") == total and plain:
            return Index(given.shards, given.text, file)
    groups = _groups(arrays, most or total)
    count = len(groups)
    if count < 2:
        return Index({f"model{SUFFIX}": [*arrays]}, "")
    shards = {
        f"model-{place:05}-of-{count:05}{SUFFIX}": names for place, names in enumerate(groups, 1)
    }
    files = {name: file for file, names in shards.items() for name in names}
    index = {"metadata": {"total_size": total}, "weight_map": files}
    return Index(shards, json.dumps(index, indent=2, sort_keys=True) + "\n")


def _groups(arrays: Mapping[str, ForeignArray], most: int) -> list[list[str]]:
    """The names of arrays in groups of at most so many bytes, in their order."""
    groups: list[list[str]] = []
    open_group: list[str] = []
    size = 0
    for name, array in arrays.items():
        nbytes = array.nbytes
        if nbytes > most:
            groups.append([name])
            continue
        if open_group and size + nbytes > most:
            groups.append(open_group)
            open_group, size = [], 0
        open_group.append(name)
        size += nbytes
    return [*groups, open_group] if open_group else groups
