"""References to classes: ``module:QualName`` and ``id@version:Name``, as manifests name them.

Owns the parser of references (:class:`SchemaRef`), the process-wide table of known classes, aliases of moved and renamed
classes, and the trust policy of readers. Reading a file never imports a module that the file names: :func:`find_class`
looks among the imported modules, and imports only those that the caller trusts. :func:`resolve_class`, which users call
with references of their own, imports. :func:`shipped` finds the files that are installed with the package.

Example:
    >>> class_ref(dict)
    'builtins:dict'
    >>> resolve_class("builtins:dict")
    <class 'dict'>
    >>> SchemaRef.parse("lab.state@3:Layer")
    SchemaRef(id='lab.state', version=3, name='Layer')
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from neuralqx_struct.errors import SerializationError, StructError

__all__ = ["SchemaRef", "alias_class", "class_ref", "resolve_class"]

# Written at class definition, under the import lock or by one dict assignment each; the newest definition wins.
_CLASSES: dict[str, type] = {}
_ALIASES: dict[str, str] = {}
# The class of each version of each schema.
_BOUND: dict[str, dict[int, type]] = {}

#: The identity of a schema: names with dots between them.
IDENTITY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
# No version has more digits, and int() refuses more than 4,300.
_SCHEMA_REF = re.compile(r"([^@:]+)@([1-9][0-9]{0,17})(?::([^@:]+))?")
_CLASS_REF = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d][\w.<>]*")


class SchemaRef(NamedTuple):
    """A version of a schema, or a struct of it: ``id@version`` or ``id@version:Name``."""

    id: str
    version: int
    name: str = ""

    def __str__(self) -> str:
        version = f"{self.id}@{self.version}"
        return f"{version}:{self.name}" if self.name else version

    @staticmethod
    def parse(text: str) -> SchemaRef | None:
        """The parts of a reference; None for text of any other form.

        Example:
            >>> SchemaRef.parse("lab.state@3"), SchemaRef.parse("lab.model:State")
            (SchemaRef(id='lab.state', version=3, name=''), None)
        """
        return _parsed(text)


def imported(
    name: str,
    extra: str,
    words: str,
    *,
    instead: str = "; or convert the files where it is installed",
) -> Any:
    """A module of an optional dependency, which an extra installs and the files named in words need.

    Raises:
        SerializationError: NQX615: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = f"pip install 'neuralqx-struct[{extra}]'{instead}"
        message = f"expected the package {name} for {words}, got none"
        raise SerializationError(message, code="NQX615", hint=hint) from error


@lru_cache(maxsize=1024)
def _parsed(text: str) -> SchemaRef | None:
    found = _SCHEMA_REF.fullmatch(text)
    if found is None:
        return None
    schema_id, version, name = found.groups(default="")
    return SchemaRef(schema_id, int(version), name)


def is_schema_ref(ref: str) -> bool:
    """True for the reference of a schema-made class, also of one with a malformed version."""
    return "@" in ref.partition(":")[0]


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


def defined_again(got: type, wanted: type) -> str | None:
    """The fix where two classes have one name, as when a cell of a notebook ran twice; None for other classes.

    Example:
        >>> first, second = (type("State", (), {"__module__": "lab"}) for _ in range(2))
        >>> defined_again(second, first)
        'lab:State was defined again, and load returns the newest definition; use that one, in like= too'
    """
    if got is wanted or class_ref(got) != class_ref(wanted):
        return None
    name = class_ref(got)
    return f"{name} was defined again, and load returns the newest definition; use that one, in like= too"


def stored_class(cls: type) -> type:
    """The class as which instances of ``cls`` are saved: for most classes themselves.

    A subclass of a schema version that adds no field is saved as that version: no file holds the code that it adds. One
    that adds fields is saved as itself.
    """
    versioned = {"__nqx_document__", "__nqx_binding__"}
    if not any(hasattr(cls, mark) for mark in versioned):
        return cls
    known: Any = next(base for base in cls.__mro__ if not versioned.isdisjoint(vars(base)))
    alike: bool = known.__nqx_fields__.keys() == vars(cls)["__nqx_fields__"].keys()
    return known if alike else cls


def register_ref(cls: type) -> None:
    """Make ``cls`` the class of its reference; it supersedes an earlier class of the same reference."""
    _CLASSES[class_ref(cls)] = cls


def bind(cls: type, schema_id: str, version: int) -> str:
    """Make ``cls`` the class of a schema version; returns the reference under which its instances are saved."""
    _BOUND.setdefault(schema_id, {})[version] = cls
    return str(SchemaRef(schema_id, version, cls.__name__))


def bound_classes(schema_id: str) -> dict[int, type]:
    """The classes that are bound to a schema, by version."""
    return dict(_BOUND.get(schema_id, {}))


def alias_class(old_ref: str, cls: type) -> None:
    """Let a reference in old payloads mean ``cls``, after the class was moved or renamed.

    Args:
        old_ref: The former ``module:QualName``.
        cls: The class that took its place.

    Raises:
        SerializationError: ``old_ref`` is not a class reference.
        TypeError: ``cls`` is no class.

    Example:
        >>> import collections
        >>> alias_class("lab.old_module:Counter", collections.Counter)
        >>> resolve_class("lab.old_module:Counter")
        <class 'collections.Counter'>
    """
    if not (isinstance(old_ref, str) and (_CLASS_REF.fullmatch(old_ref) or _names_struct(old_ref))):
        raise SerializationError(
            f"expected a class reference module:QualName, got {old_ref!r}",
            code="NQX501",
            hint="such as 'lab.model:State'",
        )
    _ALIASES[old_ref] = class_ref(cls)
    register_ref(cls)


def alias_hint(ref: str) -> str:
    """The line that names the present class of a reference."""
    name = re.split(r"[.:]", ref)[-1]
    return f'if the class has moved: s.alias_class("{ref[:200]}", {name[:100]})'


def _names_struct(ref: str) -> bool:
    parsed = SchemaRef.parse(ref)
    return parsed is not None and parsed.name != ""


def find_class(ref: str, *, trust: Iterable[str] = ()) -> type | None:
    """The class behind a reference in a file, or None; imports only modules that ``trust`` names.

    Args:
        ref: The reference as the file holds it.
        trust: Names of packages or modules that may be imported.

    Raises:
        SerializationError: A trusted module exists and fails when it is imported.
        ImportError: A trusted module cannot import another one.
    """
    ref = _ALIASES.get(ref, ref)
    if ref in _CLASSES:
        return _CLASSES[ref]
    module, _, qualname = ref.partition(":")
    if is_schema_ref(ref) or not qualname:
        return None
    trusted = any(module == each or module.startswith(f"{each}.") for each in trust)
    if trusted and not import_trusted(module):
        return None
    return _CLASSES.get(ref) or _look_up(module, qualname)


def import_trusted(
    module: str, failure: type[StructError] = SerializationError, code: str = "NQX501"
) -> bool:
    """Imports a module that the caller trusts, if it is not imported yet; returns False if it does not exist.

    Args:
        module: Its name.
        failure: The error about a module that fails.
        code: Its code.

    Raises:
        StructError: The module exists and fails, or ends the program.
        ImportError: It cannot import another module.
    """
    if module in sys.modules:
        return True
    try:
        importlib.import_module(module)
    except ImportError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):  # it does not exist
            return False
        raise
    except (Exception, SystemExit) as error:  # a module runs any code, and may fail in any way
        got = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise failure(
            f"expected the module {module!r} to be importable, got {got}",
            code=code,
            hint=f"run `python -c 'import {module}'` to see the error",
        ) from error
    return True


def _look_up(module: str, qualname: str) -> type | None:
    """Follow a qualified name through namespaces with vars(), so that no property or __getattr__ runs."""
    here: object = sys.modules.get(module)
    for name in qualname.split("."):
        if here is None or not hasattr(here, "__dict__"):
            return None
        here = vars(here).get(name)
    return here if isinstance(here, type) else None


def resolve_class(ref: str) -> type:
    """The class behind a reference that the caller trusts; imports its module where needed.

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
        of_schema = isinstance(ref, str) and _names_struct(ref)
        hint = "load the schema first" if of_schema else "write it as 'package.module:Class'"
        raise SerializationError(
            f"expected a known class reference, got {ref!r}", code="NQX501", hint=hint
        )
    module, _, qualname = _ALIASES.get(ref, ref).partition(":")
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise SerializationError(
            f"expected an importable module {module!r} for the class reference {ref!r}, got {error}",
            code="NQX501",
            hint=alias_hint(ref),
        ) from error
    found = find_class(ref)
    if found is None:
        raise SerializationError(
            f"expected a class {qualname!r} in module {module!r}, got none",
            code="NQX501",
            hint=alias_hint(ref),
        )
    return found


def identity_like(reference: str) -> str:
    """A valid identity of a schema for the reference of a class, or for any other name.

    Example:
        >>> identity_like("lab.model:VMCState"), identity_like("run-3"), identity_like("7b")
        ('lab.model.vmc_state', 'run_3', '_7b')
    """
    module, _, name = reference.rpartition(":")
    word_start = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    snake = re.sub(word_start, "_", name.rpartition(".")[2]).lower()
    parts = (re.sub(r"\W", "_", part, flags=re.ASCII) for part in (*module.split("."), snake))
    return ".".join(re.sub(r"^(?=\d)", "_", part) for part in parts if part) or "tree"


_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The path of a file that is installed with the package: in a wheel below it, in a checkout beside it.

    Example:
        >>> shipped("schemas/manifest/1.json").name
        '1.json'

    Raises:
        FileNotFoundError: It is in neither place: the installation is incomplete.
    """
    for top in (_PACKAGE / "shipped", _PACKAGE.parent):
        if (top / name).exists():
            return top / name
    raise FileNotFoundError(f"{name}: expected it beside {_PACKAGE}, got nothing; install it again")
