"""Declarative schemas for JAX checkpoints.

A Struct is an immutable, typed container that is a JAX pytree, declared in Python or in a YAML/JSON schema file, saved
as a bundle that any tool can validate, and moved between schema versions by declared, checked migrations. Customarily
``import neuralqx_struct as s``. Names are imported when they are first used: reading and checking schemas and bundles
never imports JAX. ``__init__.pyi`` has the names.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import threading
from typing import Any

__version__ = "0.1.0"


def _read_homes() -> dict[str, str]:
    """The module of each public name, as the stub imports it: one name in each statement."""
    stub = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
    imports = re.findall(r"^from (\S+) import \(?\s*(\w+) as \2\b", stub, re.MULTILINE)
    return {name: home for home, name in imports}


_PUBLIC = _read_homes()

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604

# JAX has circular imports: two threads that begin them at different ends would wait for each other.
_importing = threading.RLock()


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    try:
        with _importing:
            value = _imported(_PUBLIC[name], name)
    except ModuleNotFoundError as error:
        if error.name not in ("jax", "jaxlib"):
            raise
        message = f"{__name__}.{name} needs {error.name}, which is not installed: pip install jax"
        raise ModuleNotFoundError(message, name=error.name) from error
    globals()[name] = value
    return value


def _imported(home: str, name: str) -> Any:
    """A name of a module; one that it lacks is a module inside it."""
    module = importlib.import_module(home)
    return vars(module)[name] if name in vars(module) else importlib.import_module(f"{home}.{name}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
