"""Steps that run a function of the user's: what no other step can say, such as new values computed from old ones.

A schema file gives the function's name, such as ``lab.flip``; Python code registers the function under it
(:func:`function`). Files never make Python import or run anything else: a function runs if it is registered, and if the
step stands in documents that the reader loaded itself, or the function in a package that the caller trusts. Three
functions stand side by side as for every step: what it does to a declaration, to one struct instance of a payload, and
the steps that lead back.

Example:
    >>> @function("docs.flip")
    ... def flip(values):
    ...     return {"mask": 1 - values["mask"]}
    >>> find_function("docs.flip", own=True) is flip
    True
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from neuralqx_struct.errors import Diagnostic, MigrationError, did_you_mean
from neuralqx_struct.evolution.edits import Operation, find_field, find_struct, refuse, with_fields
from neuralqx_struct.evolution.field_steps import with_named
from neuralqx_struct.evolution.tree import Place, kind_of
from neuralqx_struct.evolution.values import Node
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.payload import iter_nodes
from neuralqx_struct.schema.conform import conform, see_node
from neuralqx_struct.schema.migration import Python, Remove, Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.types import Key, Named, format_type, walk_type

if TYPE_CHECKING:
    import numpy as np

__all__ = ["PYTHON", "Function", "find_function", "function", "name_of"]

Function = Callable[[Mapping[str, Any]], Mapping[str, Any]]
F = TypeVar("F", bound=Function)

_FUNCTIONS: dict[str, Function] = {}


def function(name: str) -> Callable[[F], F]:
    """Register a function for ``python`` steps under a name that schema files use; a decorator.

    The name is the schema's, not the code's: it stays when the function moves to another module. The newest function of
    a name is the one that runs.

    Args:
        name: Such as ``lab.flip``. The function is called for every instance of the step's struct with one mapping: what
            the step reads, by field, as plain values and read-only numpy arrays. It returns what the step writes, by
            field.

    Raises:
        TypeError: The name is no text, or what it stands for cannot be called.

    Example:
        >>> @function("docs.norm")
        ... def norm(values):
        ...     return {"norm": float(abs(values["w"]).sum())}
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"steps.function(): expected a name such as 'lab.flip', got {name!r}")

    def register(function: F) -> F:
        if not callable(function):
            raise TypeError(f"steps.function({name!r}): expected a function, got {function!r}")
        _FUNCTIONS[name] = function
        return function

    return register


def name_of(function: str | Function) -> str:
    """The name under which a function is registered; a name is its own.

    A function of a module that is not registered is from now on, under the name that it has there.

    Raises:
        TypeError: It is no function that a name leads to, such as one inside another function.
    """
    if isinstance(function, str):
        return function
    for name, known in _FUNCTIONS.items():
        if known is function:
            return name
    inside = str(getattr(function, "__qualname__", "<"))
    if not callable(function) or "<" in inside:
        message = f"expected a registered function, got {function!r}; put @steps.function('lab.name') above it"
        raise TypeError(message)
    name = f"{function.__module__}.{inside}"
    _FUNCTIONS[name] = function
    return name


def find_function(name: str, *, own: bool, trust: Iterable[str] = ()) -> Function:
    """The function that a step names.

    Args:
        name: As the schema file has it.
        own: Whether the step stands in a document that the reader brought along, not in one that a bundle carries.
        trust: Packages or modules; they are imported where that is needed to find the function, and what they register
            runs on the word of a bundle too.

    Raises:
        MigrationError: NQX312: no such function is registered, or it may not run.
    """
    for module in trust if name not in _FUNCTIONS else ():
        if module not in sys.modules:
            try:
                importlib.import_module(module)
            except ImportError:  # the message below says that no function was found
                continue
            except Exception as error:  # a module runs any code, and may fail in any way
                raise MigrationError(
                    f"expected the trusted module {module!r} to be importable, got {type(error).__name__}: {error}",
                    code="NQX312",
                    hint=f"see what `import {module}` says",
                ) from error
    if name not in _FUNCTIONS:
        meant = did_you_mean(name, _FUNCTIONS)
        hint = f"import the module that has @steps.function({name!r}), or name it: trust=['lab.migrations']"
        hint = f"{meant} Else {hint}" if meant else hint
        raise MigrationError(f"expected a registered function {name!r}, got none", code="NQX312", hint=hint)
    found = _FUNCTIONS[name]
    home = str(getattr(found, "__module__", ""))
    if not own and not any(home == t or home.startswith(f"{t}.") for t in trust):
        raise MigrationError(
            f"expected a trusted function, got {name!r}, which the documents inside the bundle ask for",
            code="NQX312",
            hint=f"look at the step, then pass trust=[{home!r}], or the schema's own files: schema='schemas/...'",
        )
    return found


# ---------------------------------------------------------------------------------------------------------------------
# python


def _python(step: Python, document: Document, target: Document) -> Document:
    name, struct = find_struct(document, step)
    for field in step.reads:
        _no_structs(find_field(struct, name, field, "reads"), document, field, "reads")
    wanted = target.structs[name].stored if name in target.structs else {}
    for field in step.writes:
        if field not in wanted:
            refuse(
                "NQX304",
                "writes",
                f"expected a stored field of {name} in version {target.version}, got {field!r}",
                did_you_mean(field, wanted) or "a step writes fields of the new version, under their names there",
            )
        _no_structs(wanted[field], target, field, "writes")
    changed = [field for field in step.writes if field in struct.stored]
    if changed and step.inverse is None and not step.lossy:
        refuse(
            "NQX308",
            "writes",
            f"expected inverse or lossy: true beside a step that changes {', '.join(changed)}, got neither",
            "name the function that leads back as `inverse: ...`; `lossy: true` gives up downgrades",
        )
    for field in step.writes:  # it may write members of an enum that only the new version has
        document = with_named(document, wanted[field].declared, target)
    return with_fields(document, name, {**struct.fields, **{field: wanted[field] for field in step.writes}})


def _no_structs(declaration: FieldDeclaration, document: Document, field: str, member: str) -> None:
    for held in walk_type(declaration.declared):
        if isinstance(held, Key) or (isinstance(held, Named) and held.name not in document.enums):
            refuse(
                "NQX304",
                member,
                f"expected fields of plain values and arrays, got {field!r}, which holds {format_type(held)}",
                "`in:` names the struct whose instances the step is for; `unwrap_key` makes an array of a key",
            )


def _python_payload(step: Python, place: Place) -> Node:
    call = place.workspace.function(step.function)
    given = {name: _value(place, name) for name in step.reads}
    try:
        result: Any = call(given)
    except Exception as error:
        raise _failed(step, place, f"got {type(error).__name__}: {error}") from error
    if not isinstance(result, Mapping):
        raise _failed(step, place, f"got a {type(result).__name__}")
    if missing := [name for name in step.writes if name not in result]:
        raise _failed(step, place, f"got none for {', '.join(missing)}")
    if undeclared := [str(name) for name in result if name not in step.writes]:
        raise MigrationError(
            f"expected {step.function} to write {', '.join(step.writes)}, got {', '.join(undeclared)} too",
            code="NQX311",
            path=format_path(place.path),
            hint=f"declare it: `writes: [{', '.join([*step.writes, *undeclared])}]`",
        )
    nodes = {name: _node(place, name, result[name]) for name in step.writes}
    changed = {**place.node, "fields": {**place.node["fields"], **nodes}}
    return _checked(step, place, changed)


def _failed(step: Python, place: Place, got: str) -> MigrationError:
    return MigrationError(
        f"expected {step.function} to give a mapping with {', '.join(step.writes)}, {got}",
        code="NQX312",
        path=format_path(place.path),
        hint="nothing was written; mend the function, or the step that names it",
    )


def _value(place: Place, name: str) -> Any:
    """A field as a plain value, its arrays read-only."""
    from neuralqx_struct.nodes import Decoder
    from neuralqx_struct.plain_codecs import PLAIN_CODECS

    node = place.field(name)
    arrays = {}
    for path, inner in iter_nodes(node):
        kind = kind_of(inner)
        if isinstance(inner, dict) and kind not in PLAIN_CODECS.by_kind:
            raise MigrationError(
                f"expected plain values and arrays for a python step, got a node of kind {kind}",
                code="NQX312",
                path=format_path((*place.at(name), *path)),
            )
        if kind == "array":
            array = place.workspace.array(inner["name"]).view()
            array.flags.writeable = False
            arrays[inner["name"]] = array
    decoder = Decoder(PLAIN_CODECS, arrays)
    value = decoder.decode(node)
    decoder.finish()
    return value


def _node(place: Place, name: str, value: Any) -> Node:
    """The inverse of :func:`_value`; arrays come back as the kind of leaf that the field held."""
    from neuralqx_struct.nodes import Encoder
    from neuralqx_struct.plain_codecs import PLAIN_CODECS

    encoder = Encoder(PLAIN_CODECS, copy=True)
    node = encoder.encode(value, FieldName(name))
    encoder.finish()
    leaves = {inner.get("leaf") for _, inner in iter_nodes(place.node["fields"].get(name)) if kind_of(inner) == "array"}
    for path, inner in iter_nodes(node):
        if kind_of(inner) != "array":
            continue
        array = encoder.arrays[inner["name"]]
        where = (*place.at(name), *path)
        made = place.workspace.store(where, inner["dtype"], array.shape, _held(array), ("python", id(array)))
        inner["name"] = made["name"]
        inner.pop("leaf", None)
        if leaves == {"numpy"}:
            inner["leaf"] = "numpy"
    return node


def _held(array: np.ndarray) -> Callable[[], np.ndarray]:
    return lambda: array


def _checked(step: Python, place: Place, changed: Node) -> Node:
    struct = place.struct
    wrong = [
        Diagnostic(d.code, d.severity, f"{d.message}\n{step.function} gave it", _below(place, d.path), hint=d.hint)
        for d in conform(place.after, struct, changed, see_node)
        if d.severity == "error" and any(d.path.startswith(f"$.{name}") for name in step.writes)
    ]
    if wrong:
        raise MigrationError(wrong)
    return changed


def _below(place: Place, path: str) -> str:
    return format_path(place.path) + path.removeprefix("$")


def _python_back(step: Python, before: Document, after: Document) -> list[Step]:
    _, old = find_struct(before, step)
    _, new = find_struct(after, step)
    changed = [field for field in step.writes if field in old.stored]
    appeared = [field for field in step.writes if field not in old.stored]
    back: list[Step] = []
    if changed:
        if step.inverse is None:
            refuse(
                "NQX423",
                "function",
                f"expected a function that leads back to {', '.join(changed)}, got a step with lossy: true",
                f"a downgrade to version {before.version} needs `inverse:` in the step",
            )
        reads = [field for field in dict.fromkeys([*step.writes, *step.reads]) if field in new.stored]
        back.append(
            Python(within=step.within, function=step.inverse, inverse=step.function, reads=reads, writes=changed)
        )
    return [*back, *(Remove(within=step.within, field=field, lossy=True) for field in appeared)]


PYTHON = Operation(_python, _python_payload, _python_back, "opaque")
