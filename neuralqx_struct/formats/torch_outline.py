"""Files of torch behind URLs: a file on this disk with all but the large records, which are fetched when they are read.

Torch reads such an outline as it reads the whole file. The first bytes of each record that was left out are its number, so
that the place of a tensor in the file is known without any private part of torch.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuralqx_struct.formats.ranges import Ranges
from neuralqx_struct.stores.archive import Member, damaged

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_RECORD: Final = re.compile(r"[^/]+/data/[^/]+")
_SMALL: Final = 16 << 10  # bytes of a record that is kept
_NUMBER: Final = struct.Struct("<q")
#: Bytes around the own header of a member that belong to it: the sizes of the member before, and its extra field.
_BEFORE, _BEHIND = 32, 192


class Outline:
    """A file of torch without its large records.

    Args:
        data: The file behind the URL.
        members: The members of its zip.
        path: The new file on this disk, as large as the other one, but sparse.
    """

    def __init__(self, data: Ranges, members: Sequence[Member], path: Path) -> None:
        self._data = data
        self._starts = {member.start: member for member in members if member.size}
        self._left_out = [
            member for member in members if member.size > _SMALL and _RECORD.fullmatch(member.name)
        ]
        self._base: int | None = None
        with path.open("xb") as file:
            for start, end in self._kept():
                file.seek(start)
                file.write(data.view[start:end])
            for number, member in enumerate(self._left_out):
                file.seek(member.start)
                file.write(_NUMBER.pack(number))

    def _kept(self) -> Iterator[tuple[int, int]]:
        start = 0
        for member in self._left_out:
            yield start, member.start
            start = member.start + member.size
        yield start, self._data.size

    def place(self, tensors: Iterable[Any]) -> None:
        """Finds the places of tensors, which torch has mapped into one region of memory.

        Raises:
            IntegrityError: One is not where a record is.
        """
        storages = [each.untyped_storage() for each in tensors if each.numel()]
        if not self._left_out:
            return
        for storage in storages:
            if self._base is None and storage.nbytes() > _SMALL:
                [number] = _NUMBER.unpack(bytes(storage[: _NUMBER.size].tolist()))
                if 0 <= number < len(self._left_out):
                    self._base = storage.data_ptr() - self._left_out[number].start
        for storage in storages:
            member = self._starts.get(storage.data_ptr() - (self._base or 0))
            if self._base is None or member is None or storage.nbytes() > member.size:
                raise damaged("expected tensors at the places of their records, got others")

    def is_kept(self, tensor: Any) -> bool:
        """True if the elements of a tensor are in the file on this disk."""
        if not tensor.numel() or not self._left_out:
            return True
        start = tensor.untyped_storage().data_ptr() - (self._base or 0)
        return self._starts[start] not in self._left_out

    def filled(self, torch: Any, tensor: Any) -> Any:
        """The tensor with its elements, of which those between its first and its last one are fetched."""
        if self.is_kept(tensor):
            return tensor
        size = tensor.element_size()
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        count = 1 + sum((length - 1) * stride for length, stride in steps)
        at = tensor.untyped_storage().data_ptr() - (self._base or 0)
        at += tensor.storage_offset() * size
        data = bytearray(self._data.read(at, at + count * size))
        made = torch.frombuffer(data, dtype=tensor.dtype)
        made = made.as_strided(tensor.shape, tensor.stride())
        if tensor.is_conj():
            made = made.conj()
        return -made if tensor.is_neg() else made


def around(headers: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the ranges between the records around the own headers of members."""
    for start, end in headers:
        yield max(start - _BEFORE, 0), end + _BEHIND
