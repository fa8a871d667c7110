"""Runs the program in ``program.py`` of the current folder: ``python -m tests.real_programs.running STEPS [ARGUMENT ...]``."""

import hashlib
import json
import sys
import types
from pathlib import Path

import jax
import numpy as np


def digest(tree):
    """The bytes of all leaves, with their types."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        held = np.asarray(leaf)
        found.update(f"{type(leaf).__name__} {held.dtype} {held.shape} ".encode() + held.tobytes())
    return found.hexdigest()


def module_of(text, name="program"):
    """The program as a module, which its classes are found in."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, f"{name}.py", "exec"), vars(module))
    return module


def results(text, until, arguments):
    """What a program leaves: its state, and what it computes. With no steps, only its schema is changed."""
    program = module_of(text)
    if until == 0:
        getattr(program, "change", lambda: None)()
        return []
    state, outputs = program.main(until, *arguments)
    return [digest(state), digest(outputs)]


if __name__ == "__main__":
    steps, *given = sys.argv[1:]
    print(json.dumps(results(Path("program.py").read_text(encoding="utf-8"), int(steps), given)))
