"""The struct package of the published neuraLQX, to hold ours against: its bundles, its behaviour, its speed.

The wheel is never installed: it ships a start-up hook, and importing the package as a whole configures JAX. Python imports
the struct package, and nothing else of it, straight from the wheel file, under the names that it has there; of the rest it
takes four errors and the functions that let the processes of a cluster wait for each other, which stand-ins here give.

The wheel is the file that the environment variable ``NEURALQX_WHEEL`` names, or the one in ``.ci/wheels``, where pip puts
it the first time. What it is, its digest says.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path

VERSION = "1.1.2"
FILE = f"neuralqx-{VERSION}-py3-none-any.whl"
SHA256 = "d10e26b335ab8be53775758a757412eab80bd474511ce0b02e563f22899c5096"
ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".ci" / "wheels"
PACKAGE = "neuralqx.experimental.utils.struct"


@functools.cache
def load() -> types.ModuleType:
    """The module ``neuralqx.experimental.utils.struct``, with which its users write ``s.Struct`` and ``s.field``.

    Raises:
        ImportError: There is no wheel and none can be fetched, the file is another one, or neuraLQX itself is imported.
    """
    if "neuralqx" in sys.modules:
        raise ImportError("neuralqx: expected a process that has not imported it, got one that has")
    found = wheel()
    parent = PACKAGE.rpartition(".")[0]
    stand_ins = {
        "neuralqx.utils.errors": _errors(),
        "neuralqx.utils.distributed": _one_process(),
        parent: {"__path__": [str(found / parent.replace(".", "/"))]},
    }
    for name, content in stand_ins.items():
        _enter(name, content)
    return importlib.import_module(PACKAGE)


def wheel() -> Path:
    """The file, fetched if need be.

    Raises:
        ImportError: It cannot be had.
    """
    path = Path(os.environ.get("NEURALQX_WHEEL") or CACHE / FILE)
    if not path.exists():
        _fetch(path)
    if (digest := hashlib.sha256(path.read_bytes()).hexdigest()) != SHA256:
        raise ImportError(
            f"{path.name}: expected the published neuralqx {VERSION}, sha256 {SHA256}, got {digest}"
        )
    return path


def _fetch(path: Path) -> None:
    """Download the wheel; several processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        options = [
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--ignore-requires-python",
            "--dest",
            folder,
        ]
        command = [sys.executable, "-m", "pip", "download", *options, f"neuralqx=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            hint = f"put {FILE} into {path.parent}, or name it in NEURALQX_WHEEL"
            raise ImportError(
                f"expected to download neuralqx=={VERSION}, got: {done.stderr.strip()}\n{hint}"
            )
        Path(folder, FILE).replace(path)


def _enter(name: str, content: dict[str, object]) -> None:
    """Put a module in place, and empty packages above it: a package without a path has no other modules."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        here = ".".join(parts[:end])
        if here not in sys.modules:
            module = types.ModuleType(here)
            vars(module)["__path__"] = []
            sys.modules[here] = module
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
    vars(sys.modules[name]).update(content)


def _errors() -> dict[str, object]:
    """The errors that it raises, with the bases that they have there."""

    class StructError(Exception):
        pass

    class FrozenStructError(StructError, AttributeError):
        pass

    class SerializationError(StructError):
        pass

    class ValidationError(StructError, TypeError):
        pass

    classes = StructError, FrozenStructError, SerializationError, ValidationError
    return {cls.__name__: cls for cls in classes}


def _one_process() -> dict[str, object]:
    """Its functions for many processes, as they behave in one."""
    return {
        "safe_replicate_for_io": lambda tree, **options: tree,
        "barrier": lambda name: None,
        "bcast": lambda value, root: value,
        "is_global_master": lambda: True,
    }
