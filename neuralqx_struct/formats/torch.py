"""The foreign format ``torch``: files of ``torch.save``, read by torch itself with ``weights_only=True`` and mapped.

Before torch sees a file, its zip directory is checked, and it must not ask for memory that its data do not fill. Programs,
pickled objects and the format of torch before 1.6 are refused. Tensors are arrays, named by the keys of dicts and lists as they
are, such as ``transformer.h.0.ln_1.weight``. Needs the extra ``torch``.

A file behind a URL is downloaded, once its zip directory was checked there.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuralqx_struct.dtypes import DTYPES, NUMPY_DTYPES, dtype_named
from neuralqx_struct.errors import READ_MORE, IntegrityError, SerializationError, UntrustedError
from neuralqx_struct.formats.archive import STORED, Member, damaged, read_directory
from neuralqx_struct.formats.ranges import View
from neuralqx_struct.formats.store import about
from neuralqx_struct.formats.table import (
    MOST_EXPANSION,
    Candidate,
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
from neuralqx_struct.manifest.payload import ForeignArray
from neuralqx_struct.places.requests import Blocks
from neuralqx_struct.places.urls import Place
from neuralqx_struct.printing import brief, first_line
from neuralqx_struct.references import imported

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

#: Bytes around the own header of a member that belong to it: the sizes of the member before, and its extra field.
_BEFORE, _BEHIND = 32, 192

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


def _require_harmless(view: View, reading: Reading) -> list[Member]:
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
            most = reading.limits.manifest_bytes // _OBJECT
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
            raise damaged(f"expected a file that torch reads, got: {first_line(text)}") from error
        reason = first_line(text.partition(_DETAIL)[2])
        message = f"expected tensors and plain values, got others\n{reason}".rstrip()
        raise UntrustedError(message, code="NQX502", hint=_SAVE_AGAIN) from error


class _Walk:
    """Collects the tensors and values of an object.

    Args:
        torch: The module.
        reading: Options for reading.

    Attributes:
        arrays: The tensors by name.
        values: The values by name.
    """

    def __init__(self, torch: Any, reading: Reading) -> None:
        self.arrays: dict[str, ForeignArray] = {}
        self.values: dict[str, Plain] = {}
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
        return ForeignArray(dtype, shape, partial(self._array, tensor, dtype))

    def _array(self, tensor: Any, dtype: str) -> Array:
        """The elements of a tensor: a view of the mapped file if they lie there in order."""
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
    view = ranges_of(path).view
    _require_harmless(view, reading)
    torch = imported("torch", "torch", "files of torch")
    file, close = on_disk(path)
    walk = _Walk(torch, reading)
    try:
        if file is not path:  # a server can send other bytes each time
            _require_harmless(mapped(file), reading)
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
    recognises=_recognises,
    opened=_opened,
    write=None,
    folder=lambda _: False,
    metadata=False,
)
