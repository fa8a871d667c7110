"""Class references: the text ``module:QualName`` that stands for a class in a manifest, and back.

Owns the process-wide table of known classes, aliases of moved and renamed ones, and the trust policy of readers.
Reading a file never imports what the file names: :func:`find_class` looks at what is already imported, and imports
only what the caller trusts; :func:`resolve_class`, which a user calls with a reference of his own, imports.

Example:
    >>> class_ref(dict)
    'builtins:dict'
    >>> resolve_class("builtins:dict")
    <class 'dict'>
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from typing import Any

from neuralqx_struct.errors import SerializationError

__all__ = ["alias_class", "class_ref", "find_class", "register_ref", "resolve_class", "stored_class"]

# Written at class definition, under the import lock or by one dict assignment each; the newest definition wins.
_CLASSES: dict[str, type] = {}
_ALIASES: dict[str, str] = {}

_SCHEMA_REF = re.compile(r"[A-Za-z_][\w.]*@\d+:\w+")
_CLASS_REF = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d][\w.<>]*")


def class_ref(cls: type) -> str:
    """The reference under which instances of ``cls`` are saved.

    Classes that were built from a schema have ``schema.id@version:Name``, all others ``module:QualName``.

    Raises:
        TypeError: ``cls`` is no class.
    """
    if not isinstance(cls, type):
        raise TypeError(f"class_ref(): expected a class, got {cls!r}")
    own: str | None = cls.__dict__.get("__nqx_ref__")
    return own or f"{cls.__module__}:{cls.__qualname__}"


def stored_class(cls: type) -> type:
    """The class as which instances of ``cls`` are saved: for most classes themselves.

    A subclass of a class that is a version of a schema is saved as that class where it adds no field: what it
    adds is code, which no file holds. One that adds fields is no version of that schema any more.
    """
    if not (hasattr(cls, "__nqx_document__") or hasattr(cls, "__nqx_claim__")):
        return cls
    known: Any = next(base for base in cls.__mro__ if not {"__nqx_document__", "__nqx_claim__"}.isdisjoint(vars(base)))
    alike: bool = known.__nqx_fields__.keys() == vars(cls)["__nqx_fields__"].keys()
    return known if alike else cls


def register_ref(cls: type, ref: str | None = None) -> None:
    """Make ``cls`` the class that its reference stands for; a class of the same reference is superseded."""
    _CLASSES[ref or class_ref(cls)] = cls


def alias_class(old_ref: str, cls: type) -> None:
    """Let a reference in old payloads mean ``cls``, after the class was moved or renamed.

    Args:
        old_ref: The former ``module:QualName``.
        cls: The class that took its place.

    Raises:
        SerializationError: ``old_ref`` is not a class reference.
    """
    if not (isinstance(old_ref, str) and (_CLASS_REF.fullmatch(old_ref) or _SCHEMA_REF.fullmatch(old_ref))):
        raise SerializationError(
            f"expected a class reference module:QualName, got {old_ref!r}",
            code="NQX501",
            hint="such as 'lab.model:State'",
        )
    _ALIASES[old_ref] = class_ref(cls)
    register_ref(cls)


def find_class(ref: str, *, trust: Iterable[str] = ()) -> type | None:
    """The class behind a reference in a file, or None; never imports a module that ``trust`` does not name.

    Args:
        ref: The reference as the file holds it.
        trust: Names of packages or modules that may be imported.

    Raises:
        SerializationError: A trusted module is there and fails when it is imported.
    """
    ref = _ALIASES.get(ref, ref)
    if ref in _CLASSES:
        return _CLASSES[ref]
    module, _, qualname = ref.partition(":")
    if "@" in module or not qualname:
        return None
    if module not in sys.modules and any(module == t or module.startswith(f"{t}.") for t in trust):
        try:
            importlib.import_module(module)
        except ImportError:
            return None
        except Exception as error:  # a module runs any code, and may fail in any way
            raise SerializationError(
                f"expected the trusted module {module!r} to be importable, got {type(error).__name__}: {error}",
                code="NQX501",
                hint=f"see what `import {module}` says",
            ) from error
        if ref in _CLASSES:
            return _CLASSES[ref]
    return _walk(module, qualname)


def _walk(module: str, qualname: str) -> type | None:
    """Follow a qualified name through namespaces with vars(), so that no property or __getattr__ runs."""
    here: object = sys.modules.get(module)
    for name in qualname.split("."):
        if here is None or not hasattr(here, "__dict__"):
            return None
        here = vars(here).get(name)
    return here if isinstance(here, type) else None


def resolve_class(ref: str) -> type:
    """The class behind a reference that the caller vouches for; imports its module where needed.

    Args:
        ref: ``module:QualName``, an alias of one, or the reference of a schema class that was loaded.

    Raises:
        SerializationError: The module cannot be imported or has no such class.

    Example:
        >>> resolve_class("collections:OrderedDict")
        <class 'collections.OrderedDict'>
    """
    found = find_class(ref) if isinstance(ref, str) else None
    if found is not None:
        return found
    if not isinstance(ref, str) or not _CLASS_REF.fullmatch(ref):
        known_form = isinstance(ref, str) and _SCHEMA_REF.fullmatch(ref)
        hint = "load the schema first" if known_form else "write it as 'package.module:Class'"
        raise SerializationError(f"expected a known class reference, got {ref!r}", code="NQX501", hint=hint)
    module, _, qualname = _ALIASES.get(ref, ref).partition(":")
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise SerializationError(
            f"expected an importable module {module!r} for the class reference {ref!r}, got {error}",
            code="NQX501",
            hint="if the class has moved, say so with alias_class(old_ref, cls)",
        ) from error
    found = find_class(ref)
    if found is None:
        raise SerializationError(
            f"expected a class {qualname!r} in module {module!r}, got none",
            code="NQX501",
            hint="if the class was renamed, say so with alias_class(old_ref, cls)",
        )
    return found
