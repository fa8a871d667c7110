"""Files of nqxpack as the parts of a variational state of NetKet, and as a state whose classes the file names.

nqxpack makes the model and the sampler by the names in a file, with the arguments in it. Here that happens for packages that the
caller trusts alone. Needs the extra ``netket``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from neuralqx_struct import formats
from neuralqx_struct.errors import SerializationError, UntrustedError
from neuralqx_struct.formats.nqxpack import NQXPACK, named_objects
from neuralqx_struct.formats.table import ForeignFile, Reading
from neuralqx_struct.printing import listed
from neuralqx_struct.references import imported

__all__ = ["loaded", "parts_in"]

#: What every file may name: plain types, which call nothing.
_PLAIN: Final = frozenset(
    f"builtins.{name}"
    for name in ("bool", "complex", "dict", "float", "int", "list", "str", "tuple")
) | {"types.NoneType"}
_STATE: Final = "state"
_SAMPLES: Final = "samples"


def parts_in(file: ForeignFile) -> dict[str, Any]:
    """The parts of the one state in an open file of nqxpack, with the samples of its last estimate if the file has them.

    Raises:
        SerializationError: It cannot be read, or holds something else.
    """
    leaves: dict[str, Any] = {**file.values}
    leaves |= {name: array.read() for name, array in file.arrays.items()}
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *outer, last = formats.split(name)
        inner = tree
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = leaf
    if file.format != NQXPACK.name or "variables" not in tree.get(_STATE, {}):
        message = (
            f"expected a file of nqxpack with one variational state, got one with {listed(tree)}"
        )
        hint = "save the state alone: nqxpack.save(state, path)"
        raise SerializationError(message, code="NQX614", file=file.path, hint=hint)
    found: dict[str, Any] = tree[_STATE]
    return {**found, _SAMPLES: tree.get(_SAMPLES, {}).get(_SAMPLES)}


def loaded(path: str | os.PathLike[str], trust: Iterable[str], reading: Reading) -> Any:
    """The object in a file of nqxpack, made by nqxpack.

    Args:
        path: The file.
        trust: Packages whose classes and functions the file may name. They are called with the arguments in the file.
        reading: How it is read: the sizes above which it is refused.

    Raises:
        UntrustedError: It names something of another package; nothing was imported that is not trusted.
    """
    place = Path(path)
    trusted = set(trust)
    names = named_objects(place, reading) - _PLAIN
    names = {part for name in names for part in name.removesuffix("]").split("[")} - _PLAIN
    outside = sorted(name for name in names if _package(name) not in trusted)
    outside = outside or sorted(name for name in names if _home(name) not in trusted)
    if outside:
        packages = sorted({_package(name) for name in names})
        message = f"expected names of trusted packages, got {listed(outside)}"
        hint = f"pass the state to fill, or trust={packages} if the file is your own"
        raise UntrustedError(message, code="NQX501", file=str(path), hint=hint)
    nqxpack = imported(NQXPACK.name, "netket", "files of nqxpack")
    return nqxpack.load(place)


def _package(name: str) -> str:
    return name.partition(".")[0]


def _home(name: str) -> str:
    """The package that defines an object; empty if there is none of this name.

    A module of a trusted package can hold objects of others, such as ``os``.
    """
    module, _, last = name.rpartition(".")
    found: Any = None
    for place, inner in ((module, [last]), (module.rpartition(".")[0], name.split(".")[-2:])):
        try:
            found = importlib.import_module(place)
            for part in inner:
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError):
            found = None
        if found is not None:
            break
    home = getattr(found, "__module__", None)
    return _package(home) if isinstance(home, str) else ""
