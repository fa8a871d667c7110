"""Files that users would choose in place of a bundle: how each saves a tree of arrays, loads it, and loads one array of it.

A tree is a dict of arrays or of trees. Formats of flat names join the keys by dots.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox
import flax.serialization
import numpy as np
import orbax.checkpoint as ocp
import safetensors
import safetensors.numpy

import neuralqx_struct as s
from benchmarks.many import LIMITS

Tree = Mapping[str, Any]
PACKAGES = ("neuralqx-struct", "jax", "numpy", "safetensors", "equinox", "flax", "orbax-checkpoint")


@dataclass(frozen=True)
class Format:
    """A format of files.

    Attributes:
        save: Writes a tree to a path.
        load: Reads it; a tree of the same structure is passed for those that need one.
        one: Reads the array of a name, where the format can.
    """

    save: Callable[[Path, Tree], object]
    load: Callable[[Path, Tree], Any]
    one: Callable[[Path, str], object] | None = None


def flat(tree: Tree, prefix: str = "") -> dict[str, np.ndarray]:
    """The arrays of a tree by their joined names."""
    found: dict[str, np.ndarray] = {}
    pending = [(prefix, tree)]
    while pending:
        path, node = pending.pop()
        for key, value in node.items():
            if isinstance(value, Mapping):
                pending.append((f"{path}{key}.", value))
            else:
                found[f"{path}{key}"] = value
    return found


def npz(path: Path, names: list[str] | None = None) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in names or file.files}


def _safe_open(path: Path, name: str) -> object:
    with safetensors.safe_open(path, "numpy") as file:
        return file.get_tensor(name)


def _orbax_save(path: Path, tree: Tree) -> None:
    with ocp.PyTreeCheckpointer() as writer:
        writer.save(path.absolute(), tree, force=True)


def _orbax_load(path: Path, _: Tree) -> object:
    with ocp.PyTreeCheckpointer() as reader:
        return reader.restore(path.absolute())


def _leaves(tree: Tree) -> dict[str, Any]:
    return dict(tree)


FORMATS = {
    "neuralqx-struct": Format(
        lambda path, tree: s.export(tree, path, overwrite=True, limits=LIMITS),
        lambda path, _: s.load(path, limits=LIMITS),
        lambda path, name: s.load(path, select=s.filters.PathIn((name,)), limits=LIMITS),
    ),
    "np.savez": Format(
        lambda path, tree: np.savez(path.with_suffix(".npz"), **flat(tree)),
        lambda path, _: npz(path.with_suffix(".npz")),
        lambda path, name: npz(path.with_suffix(".npz"), [name]),
    ),
    "safetensors": Format(
        lambda path, tree: safetensors.numpy.save_file(flat(tree), path),
        lambda path, _: safetensors.numpy.load_file(path),
        _safe_open,
    ),
    "equinox": Format(
        lambda path, tree: equinox.tree_serialise_leaves(path, _leaves(tree)),
        lambda path, tree: equinox.tree_deserialise_leaves(path, _leaves(tree)),
    ),
    "flax msgpack": Format(
        lambda path, tree: path.write_bytes(flax.serialization.msgpack_serialize(_leaves(tree))),
        lambda path, _: flax.serialization.msgpack_restore(path.read_bytes()),
    ),
    "orbax": Format(_orbax_save, _orbax_load),
    "pickle": Format(
        lambda path, tree: path.write_bytes(pickle.dumps(tree, 5)),
        lambda path, _: pickle.loads(path.read_bytes()),
    ),
}
