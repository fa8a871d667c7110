"""The foreign format ``torch``: files of ``torch.save``, read by torch itself with ``weights_only=True`` and mapped.

Before torch sees a file, its zip directory is checked, and it must not ask for memory that its data do not fill. Programs,
pickled objects and the format of torch before 1.6 are refused. Tensors are arrays, named by the keys of dicts and lists as they
are, such as ``transformer.h.0.ln_1.weight``. Needs the extra ``torch``.

Of a file behind a URL torch reads an outline on this disk: all but the large records, which are fetched when they are read. The
first bytes of each of these are its number, so that the place of a tensor is known without any private part of torch.
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuralqx_struct.bundle.urls import Place, RemotePath
from neuralqx_struct.dtypes import DTYPES, NUMPY_DTYPES, dtype_named
from neuralqx_struct.errors import READ_MORE, IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.formats.ranges import Blocks, Ranges, View
from neuralqx_struct.formats.table import (
    MOST_EXPANSION,
    Candidate,
    ForeignArray,
    ForeignFile,
    Format,
    Plain,
    Reading,
    described,
    mapped,
    on_disk,
    ranges_of,
    unreadable,
)
from neuralqx_struct.manifest import Limits
from neuralqx_struct.manifest.payload import Region
from neuralqx_struct.printing import brief
from neuralqx_struct.stores.archive import STORED, Member, damaged, read_directory
from neuralqx_struct.stores.store import about, imported

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


Keys = tuple[str, ...]

_OBJECTS: Final = "data.pkl"
_PROGRAM: Final = "constants.pkl"
_SUFFIXES: Final = (".pt", ".pth", ".ckpt", ".bin")
#: The first pickle of a file of torch before 1.6: a number that marks the format.
_OLD: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
#: Classes that torch would call to make memory of any size without data; each name ends the line of an opcode.
_ALLOCATING: Final = re.compile(rb"\n(bytearray|Tensor|TypedStorage)\r?\n")
_OBJECT: Final = 8  # in a pickle one byte can be a whole object
#: Words of torch about a file that needs more than tensors and plain values.
_REFUSED, _DETAIL = "Weights only load failed", "WeightsUnpickler error:"
_SAVE_AGAIN: Final = "save it again where it was made: torch.save(model.state_dict(), path)"


def _require_harmless(view: View, limits: Limits) -> list[Member]:
    """Checks a file before torch reads it; returns its members.

    Raises:
        IntegrityError: Its directory is damaged.
        UntrustedError: It is a program or an old pickle, or expands to more than its size.
    """
    if bytes(view[: len(_OLD)]) == _OLD:
        message = "expected a zip file of torch, got the pickles of torch before 1.6"
        hint = "load and save it again with a newer torch: torch.save(torch.load(path), path)"
        raise UntrustedError(message, code="NQX502", hint=hint)
    ahead = (
        partial(view.fetch, before=_BEFORE, behind=_BEHIND) if isinstance(view, Blocks) else None
    )
    members = read_directory(view, any_names=True, ahead=ahead)
    objects = b""
    for member in members:
        folder, _, name = member.name.rpartition("/")
        if member.method != STORED:
            message = f"expected members that are not compressed, got {member.name!r}"
            raise UntrustedError(message, code="NQX508", hint=_SAVE_AGAIN)
        if name == _PROGRAM:
            message = "expected tensors and plain values, got a program of TorchScript"
            raise UntrustedError(message, code="NQX502", hint=_SAVE_AGAIN)
        if name == _OBJECTS and "/" not in folder:
            most = limits.manifest_bytes // _OBJECT
            if member.size > most:
                message = f"expected at most {most} bytes in {name}, got {member.size}"
                raise SerializationError(message, code="NQX005", hint=READ_MORE)
            objects = bytes(view[member.start : member.start + member.size])
    found = _ALLOCATING.search(objects)
    if found is not None:
        message = (
            f"expected tensors and plain values, got {found[1].decode()}, which can take any memory"
        )
        raise UntrustedError(message, code="NQX502", hint=_SAVE_AGAIN)
    return members


def _loaded(torch: Any, path: Path) -> Any:
    """The object in a file.

    Raises:
        UntrustedError: It needs classes or functions of the file.
        IntegrityError: Torch cannot read it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about deprecated kinds of tensors
            return torch.load(path, weights_only=True, mmap=True, map_location="cpu")
    except Exception as error:  # torch raises errors of every kind for damaged files
        text = str(error)
        if _REFUSED not in text:
            raise damaged(f"expected a file that torch reads, got: {_first_line(text)}") from error
        reason = _first_line(text.partition(_DETAIL)[2])
        message = f"expected tensors and plain values, got others\n{reason}".rstrip()
        raise UntrustedError(message, code="NQX502", hint=_SAVE_AGAIN) from error


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]


class _Walk:
    """Collects the tensors and values of an object.

    Args:
        torch: The module.
        reading: Options for reading.
        outline: The file behind a URL.

    Attributes:
        arrays: The tensors by name.
        values: The values by name.
        tensors: The tensors that can be read.
    """

    def __init__(self, torch: Any, reading: Reading, outline: Outline | None = None) -> None:
        self.arrays: dict[str, ForeignArray] = {}
        self.values: dict[str, Plain] = {}
        self.tensors: list[Any] = []
        self._outline = outline
        self._torch, self._separator, self._limits = torch, reading.separator, reading.limits
        self._nodes = self._text = 0

    def add(self, item: Any, keys: Keys = ()) -> None:
        """Adds an object and all in it; one that is in several places is added for each."""
        self._nodes += 1
        self._require(self._nodes, self._limits.nodes, "objects")
        self._require(len(keys), self._limits.depth, "levels")
        for key, inner in _members(item):
            self.add(inner, (*keys, key))
        if not isinstance(item, _CONTAINERS):
            self._leaf(self._separator.join(keys), item)  # names of modules have dots: no escapes

    def _require(self, count: int, most: int, words: str) -> None:
        if count > most:
            message = f"expected at most {most} {words} in a file of torch, got more"
            raise SerializationError(message, code="NQX005", hint=READ_MORE)

    def _leaf(self, name: str, item: Any) -> None:
        self._text += len(name)
        self._require(self._text, self._limits.manifest_bytes, "bytes of names")
        if name in self.arrays or name in self.values:
            raise IntegrityError(about("NQX408", name, "expected names once, got two alike"))
        if isinstance(item, self._torch.Tensor):
            self.arrays[name] = self._tensor(name, item)
        elif isinstance(item, (bytes, bytearray, complex)):
            import numpy as np

            data = item if isinstance(item, complex) else np.frombuffer(item, "uint8")
            self.arrays[name] = described(data)
        elif item is None or type(item) in (bool, int, float, str):
            self.values[name] = item
        else:
            is_dtype = isinstance(item, self._torch.dtype)
            self.values[name] = str(item) if is_dtype else type(item).__name__

    def _tensor(self, name: str, tensor: Any) -> ForeignArray:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if type(tensor) not in (self._torch.Tensor, self._torch.nn.Parameter) or tensor.is_nested:
            read = unreadable(name, type(tensor).__name__, _KNOWN, _SAVE_AGAIN)
            return ForeignArray(type(tensor).__name__, (), read)
        shape = tuple(tensor.shape)
        is_dense = tensor.layout == self._torch.strided and tensor.device.type == "cpu"
        if dtype not in DTYPES or not is_dense:
            kind = f"{dtype}, {tensor.layout}, on {tensor.device}"
            return ForeignArray(kind, shape, unreadable(name, kind, _KNOWN, _SAVE_AGAIN))
        nbytes = tensor.numel() * tensor.element_size()
        stored = tensor.untyped_storage().nbytes()
        if nbytes > self._limits.full_bytes and nbytes > MOST_EXPANSION * stored:
            message = f"expected at most {self._limits.full_bytes} bytes, got {stored} that expand to {nbytes}"
            raise UntrustedError(about("NQX505", name, message, READ_MORE))
        self.tensors.append(tensor)
        read = partial(self._array, tensor, dtype)
        if self._outline is None:
            return ForeignArray(dtype, shape, read)

        def part(region: Region) -> Array:
            if any((each.step or 1) < 0 for each in region):  # torch has no such views
                return read()[region]
            return self._array(tensor[region], dtype)

        return ForeignArray(dtype, shape, read, part)

    def _array(self, tensor: Any, dtype: str) -> Array:
        """The elements of a tensor: a view of the mapped file if they lie there in order."""
        if self._outline is not None:
            tensor = self._outline.filled(self._torch, tensor)
        whole = tensor.detach().resolve_conj().resolve_neg()
        if dtype not in NUMPY_DTYPES:  # numpy has no name for it
            bits = self._torch.uint8 if whole.element_size() == 1 else self._torch.int16
            whole = whole.contiguous().view(bits)
        made: Array = whole.numpy()
        made = made.view(dtype_named(dtype))
        made.flags.writeable = False
        return made


_KNOWN: Final = "a dense tensor of numbers"
_CONTAINERS: Final = (dict, list, tuple)


def _members(item: Any) -> Iterator[tuple[str, Any]]:
    """The members of a container with their keys as text."""
    if isinstance(item, dict):
        for key, inner in item.items():
            if type(key) not in (str, int):
                message = f"expected keys that are text or numbers, got {brief(key)}"
                raise SerializationError(message, code="NQX612", hint=_SAVE_AGAIN)
            yield str(key), inner
    elif isinstance(item, (list, tuple)):
        for place, inner in enumerate(item):
            yield str(place), inner


def _opened(path: Place, reading: Reading) -> ForeignFile:
    data = ranges_of(path)
    members = _require_harmless(data.view, reading.limits)
    torch = imported("torch", "torch", "files of torch")
    if isinstance(path, RemotePath):
        with suppress(
            IntegrityError
        ):  # tensors that torch makes of other tensors need their elements
            return _outlined(torch, path, data, members, reading)
    file, close = on_disk(path)
    return _read(torch, path, file, close, _Walk(torch, reading))


def _outlined(
    torch: Any, path: RemotePath, data: Ranges, members: list[Member], reading: Reading
) -> ForeignFile:
    """A file behind a URL, of which the large records are fetched when they are read.

    Raises:
        IntegrityError: Torch cannot read it without them.
    """
    from tempfile import TemporaryDirectory

    holder = TemporaryDirectory(prefix="neuralqx-struct-")
    try:
        file = Path(holder.name, "outline.pt")
        outline = Outline(data, members, file)
        _require_harmless(mapped(file), reading.limits)  # a server can send other bytes each time
    except BaseException:
        holder.cleanup()
        raise
    walk = _Walk(torch, reading, outline)
    found = _read(torch, path, file, holder.cleanup, walk)
    try:
        outline.place(walk.tensors)
    except BaseException:
        found.close()
        raise
    return found


def _read(
    torch: Any, path: Place, file: Path, close: Callable[[], object], walk: _Walk
) -> ForeignFile:
    """The content of a file on this disk, for the place that was asked for."""
    try:
        walk.add(_loaded(torch, file))
    except BaseException:
        close()
        raise
    return ForeignFile(
        path=str(path), format=TORCH.name, arrays=walk.arrays, values=walk.values, close=close
    )


def _recognises(found: Candidate) -> bool:
    """Whether a file is a zip with torch's objects first, or one that is named for torch, or an old one."""
    if found.start.startswith(_OLD):
        return True
    if found.start[:4] != b"PK\3\4":
        return False
    length = int.from_bytes(found.start[26:28], "little")
    first = found.start[30 : 30 + length]
    return first.endswith(b"/data.pkl") or found.path.name.endswith(_SUFFIXES)


TORCH: Final = Format(
    name="torch",
    title="a file of torch.save",
    suffix=".pt",
    extra="torch",
    recognises=_recognises,
    opened=_opened,
    write=None,
    folder=lambda _: False,
    metadata=False,
)
