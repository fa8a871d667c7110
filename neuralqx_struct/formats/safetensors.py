"""The foreign format ``safetensors``: one file, or a folder of shards with an index, as Hugging Face writes them.

Files are mapped: opening one reads its header, and an array is a view. Needs no package. Written files have the order
and the padding that the package ``safetensors`` gives them, so that its own files come out bit by bit;
:attr:`~neuralqx_struct.formats.table.ForeignFile.form` keeps the headers of others.

Example:
    >>> import tempfile
    >>> import numpy as np
    >>> from neuralqx_struct import formats
    >>> path = formats.write(f"{tempfile.mkdtemp()}/m.safetensors", "safetensors", {"w": np.ones(2)})
    >>> with formats.opened(path) as file:
    ...     file.arrays["w"].read()
    array([1., 1.])
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from neuralqx_struct.dtypes import dtype_named
from neuralqx_struct.errors import Diagnostic, IntegrityError, SerializationError, StructError
from neuralqx_struct.formats.ranges import Ranges, array_in, part_in
from neuralqx_struct.formats.safetensors_store import (
    CODES,
    METADATA,
    Header,
    Tensor,
    header_end,
    header_of,
    read_header,
)
from neuralqx_struct.formats.shards import (
    INDEX,
    SUFFIX,
    beside,
    index_of,
    read_index,
    require_small,
    single_or_index,
)
from neuralqx_struct.formats.store import about, bytes_of, require_possible
from neuralqx_struct.formats.table import (
    Candidate,
    ForeignArray,
    ForeignFile,
    Format,
    Reading,
    Writing,
    checked,
    ranges_of,
    unreadable,
)
from neuralqx_struct.manifest import MOST_FINDINGS, Findings, collector_paused, raise_findings
from neuralqx_struct.places.checksums import write_all
from neuralqx_struct.places.urls import Place

_OF_DTYPE: Final = {logical: code for code, logical in CODES.items() if logical}
_KNOWN: Final = f"a dtype among {', '.join(_OF_DTYPE.values())}"
_CONVERT: Final = "convert the array to one of these with the program that wrote the file"
_RESTORE: Final = "restore the file from a copy, or write it again with the program that made it"
_ORDER: Final = {code: place for place, code in enumerate(CODES)}


def _recognises(found: Candidate) -> bool:
    if found.names is not None:
        return any(name.endswith((SUFFIX, INDEX)) for name in found.names)
    if found.path.name.endswith((SUFFIX, INDEX)):
        return True
    header = int.from_bytes(found.start[:8], "little")
    return found.start[8:9] == b"{" and header <= found.size - 8


# Reading


def _opened(path: Place, reading: Reading) -> ForeignFile:  # noqa: ARG001 - it has no nested names
    name, file = single_or_index(path)
    if name.endswith(INDEX):
        return _opened_shards(path, name, file)
    data, header = _header(file)

    def form() -> dict[str, Any]:
        text = _unusual(data, header)
        return {} if text is None else {"header": text}

    return ForeignFile(
        path=str(path),
        format=SAFETENSORS.name,
        arrays=_arrays(data, header),
        metadata=header.metadata,
        form=form,
        check=_unchecked,
    )


def _unchecked(_: str) -> None:
    """The damage of an array: none, as the format has no checksums, and sizes are checked by now."""


def _header(path: Place) -> tuple[Ranges, Header]:
    data = ranges_of(path)
    end = header_end(data.read(0, min(8, data.size)), data.size)
    return data, read_header(data.read(0, end), data.size)


def _opened_shards(path: Place, index_name: str, index_path: Place) -> ForeignFile:
    """The arrays of all files that an index names."""
    content = ranges_of(index_path)
    index = read_index(content.read(0, require_small(content.size)))
    folder = path if path.is_dir() else path.parent
    arrays: dict[str, ForeignArray] = {}
    metadata: dict[str, str] = {}
    read: dict[str, tuple[Ranges, Header]] = {}
    found: list[Diagnostic] = []
    for name in index.shards:
        if len(found) >= MOST_FINDINGS:
            break
        try:
            data, header = _header(beside(folder, name))
            own = _arrays(data, header)
        except StructError as error:
            found += error.in_file(str(folder / name)).diagnostics
            continue
        read[name] = data, header
        found += islice(index.differences(name, own), MOST_FINDINGS)
        arrays |= own
        metadata |= header.metadata
    raise_findings(found)

    def form() -> dict[str, Any]:
        texts = {name: _unusual(*each, metadata) for name, each in read.items()}
        return {
            "index": index.text,
            "name": index_name,
            "nbytes": sum(array.nbytes for array in arrays.values()),
            "headers": {name: text for name, text in texts.items() if text is not None},
        }

    return ForeignFile(
        path=str(path),
        format=SAFETENSORS.name,
        arrays=arrays,
        metadata=metadata,
        form=form,
        check=lambda _: (
            None
        ),  # the format has no checksums; all sizes and places are checked by now
    )


def _unusual(data: Ranges, header: Header, metadata: Mapping[str, str] | None = None) -> str | None:
    """The text of a header that differs from the one that would be written for the same arrays."""
    text = bytes(data.read(0, header.end))
    sized = ((name, t.code, t.shape, t.end - t.start) for name, t in header.tensors.items())
    if text == _usual(sized, header.metadata if metadata is None else metadata):
        return None
    return text[8:].decode()


def _usual(
    tensors: Iterable[tuple[str, str, Iterable[int], int]], metadata: Mapping[str, str]
) -> bytes:
    """The start of a file with these tensors, in the order of the package: the largest dtypes first, then by name."""
    ordered = sorted(tensors, key=lambda tensor: (-_ORDER.get(tensor[1], 0), tensor[0]))
    sized = [(name, code, [*shape], nbytes) for name, code, shape, nbytes in ordered]
    return header_of(sized, metadata=metadata)


@collector_paused()
def _arrays(data: Ranges, header: Header) -> dict[str, ForeignArray]:
    """The arrays of one file, in the order of its header.

    Raises:
        IntegrityError: The sizes of some do not agree with their dtypes and shapes: all problems.
    """
    found = Findings()
    arrays: dict[str, ForeignArray] = {}
    for name, tensor in header.tensors.items():
        code, shape, start, _ = tensor
        logical = CODES.get(code)
        if logical is None:
            arrays[name] = ForeignArray(
                code, tuple(shape), unreadable(name, code, _KNOWN, _CONVERT)
            )
            continue
        dtype = dtype_named(logical)
        try:
            _require_size(tensor, dtype.itemsize)
        except IntegrityError as error:
            found.add(error.code, ("arrays", name), error.diagnostics[0].message, _RESTORE)
            if found.full:
                break
        dims = tuple(shape)
        read = partial(array_in, data, start, dtype, dims)
        slices = None if data.cheap else partial(part_in, data, start, dtype, dims)
        arrays[name] = ForeignArray(logical, dims, read, slices, data.cheap)
    if found:
        raise IntegrityError(found)
    return arrays


def _require_size(tensor: Tensor, itemsize: int) -> None:
    """Checks that the data of a tensor have the size of its shape."""
    code, shape, start, end = tensor
    held = end - start
    if held and len(shape) <= 32 and prod(shape) * itemsize == held:
        return
    require_possible(shape, itemsize)
    nbytes = prod(shape) * itemsize
    if nbytes != held:
        message = f"expected {nbytes} bytes for {code}{shape}, got {held}"
        raise IntegrityError(message, code="NQX408")


# Writing


def _folder(writing: Writing) -> bool:
    return writing.max_shard_size is not None or "index" in writing.form


def _write(stage: Path, arrays: Mapping[str, ForeignArray], writing: Writing) -> None:
    _require_writable(arrays)
    if not _folder(writing):
        _write_file(stage, arrays, writing.metadata, writing.form.get("header"))
        return
    index = index_of(arrays, writing.form, writing.max_shard_size)
    headers = writing.form.get("headers")
    headers = headers if isinstance(headers, Mapping) else {}
    for name, members in index.shards.items():
        own = {member: arrays[member] for member in members}
        _write_file(stage / name, own, writing.metadata, headers.get(name))
    if index.text:
        with (stage / index.name).open("xb") as file:
            file.write(index.text.encode())
            os.fsync(file.fileno())


def _require_writable(arrays: Mapping[str, ForeignArray]) -> None:
    """Checks that the format has names for all dtypes.

    Raises:
        SerializationError: It does not: all arrays.
    """
    found: list[Diagnostic] = []
    for name, array in arrays.items():
        if name == METADATA:
            message = "expected any other array name: the format keeps this one"
            found.append(about("NQX614", name, message))
        if array.dtype not in _OF_DTYPE:
            message = f"expected a dtype among {', '.join(_OF_DTYPE)}, got {array.dtype[:60]}"
            found.append(about("NQX411", name, message, "cast the array to one of these"))
    if found:
        raise SerializationError(found)


def _write_file(
    path: Path, arrays: Mapping[str, ForeignArray], metadata: Mapping[str, str], text: Any
) -> None:
    """Writes one file, with a header of this text if that describes these arrays."""
    sized = [(name, _OF_DTYPE[a.dtype], a.shape, a.nbytes) for name, a in arrays.items()]
    head = _usual(sized, metadata)
    nbytes = sum(array.nbytes for array in arrays.values())
    header = read_header(memoryview(head), len(head) + nbytes)
    given = _described(text, nbytes) if isinstance(text, str) else None
    if given is not None and _same(given[1], header):
        head, header = given
    places = sorted(header.tensors, key=lambda name: header.tensors[name][2:])
    with path.open("wb", buffering=0) as opened:
        file = cast("BinaryIO", opened)
        write_all(file, memoryview(head))
        for name in places:
            write_all(file, memoryview(bytes_of(checked(name, arrays[name]))))
        os.fsync(file.fileno())


def _described(text: str, nbytes: int) -> tuple[bytes, Header] | None:
    """The start of a file with a header of this text; None if it does not fit the size of the data."""
    body = text.encode()
    head = len(body).to_bytes(8, "little") + body
    try:
        return head, read_header(memoryview(head), len(head) + nbytes)
    except IntegrityError:
        return None


def _same(given: Header, header: Header) -> bool:
    """True if two headers describe the same arrays, in whatever order."""

    def described(header: Header) -> dict[str, tuple[str, list[int]]]:
        return {name: (tensor.code, tensor.shape) for name, tensor in header.tensors.items()}

    return given.metadata == header.metadata and described(given) == described(header)


SAFETENSORS: Final = Format(
    name="safetensors",
    title="a safetensors file",
    suffix=SUFFIX,
    extra=None,
    recognises=_recognises,
    opened=_opened,
    write=_write,
    folder=_folder,
    metadata=True,
)
