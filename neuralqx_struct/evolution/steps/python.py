"""The step that runs a function of the user, for changes that no other step can make.

A schema file gives the function's name, such as ``lab.flip``; Python code registers the function under it
(:func:`function`). Files never make Python import or run anything else: a function runs if it is registered, and if the
step is in documents that the reader loaded itself, or the function in a package that the caller trusts.

Example:
    >>> @function("docs.flip")
    ... def flip(values):
    ...     return {"mask": 1 - values["mask"]}
    >>> find_function("docs.flip", own=True) is flip
    True
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from neuralqx_struct.errors import Diagnostic, Hint, Keyword, MigrationError, did_you_mean
from neuralqx_struct.evolution.payload_tree import Place, computed, copied
from neuralqx_struct.evolution.steps.operations import (
    Scope,
    StepKind,
    built,
    refuse,
    with_named,
)
from neuralqx_struct.manifest.kinds import ARRAY, DICT, STRUCT, iter_nodes, shown_node
from neuralqx_struct.paths import FieldName, format_path
from neuralqx_struct.references import import_trusted, is_schema_ref
from neuralqx_struct.schema.conformance import conform, see_node
from neuralqx_struct.schema.fitting import Fit
from neuralqx_struct.schema.graph import types_across
from neuralqx_struct.schema.migration import Python, Remove, Step
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.stacks import require_single
from neuralqx_struct.types import Node
from neuralqx_struct.types.text import format_type

if TYPE_CHECKING:
    import numpy as np

Function = Callable[[Mapping[str, Any]], Mapping[str, Any]]
F = TypeVar("F", bound=Function)

_FUNCTIONS: dict[str, Function] = {}


def function(name: str) -> Callable[[F], F]:
    """Registers a function for ``python`` steps under a name that schema files use; a decorator.

    The name belongs to the schema and does not change when the function moves to another module. The newest function of
    a name is the one that runs.

    Args:
        name: Such as ``lab.flip``. The function is called for every instance of the step's struct with one mapping: the
            fields that the step reads, as plain values and read-only numpy arrays, a struct as a dict of its fields. It
            returns the fields that the step writes, likewise. Arrays of a stacked struct have their leading axes.

    Raises:
        TypeError: The name is no text, or the object under it cannot be called.

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
    """The name under which a function is registered; a name is returned as it is.

    A function of a module that is not registered yet gets registered under its name there.

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
        name: The name in the schema file.
        own: Whether the reader loaded the step's document itself, instead of taking it from a bundle.
        trust: Packages or modules. They are imported if the function is not registered yet, and functions of theirs may
            run for steps of a bundle, too.

    Raises:
        MigrationError: NQX312: no such function is registered, it may not run, or a trusted module fails.
        ImportError: A trusted module cannot import another one.
    """
    given = [] if name in _FUNCTIONS else [*trust]
    missing = [module for module in given if not import_trusted(module, MigrationError, "NQX312")]
    if name not in _FUNCTIONS:
        meant = did_you_mean(name, _FUNCTIONS)
        example = Keyword("trust", ["lab.migrations"])
        hint = Hint(f"name the module that has @steps.function({name!r}), such as ", example)
        hint = Hint(f"{meant} Else ", hint) if meant else hint
        reasons = [
            f"\nthe trusted module {module!r} "
            + ("does not exist" if module in missing else "registers no such function")
            for module in given
        ]
        raise MigrationError(
            f"expected a registered function {name!r}, got none{''.join(reasons)}",
            code="NQX312",
            hint=hint,
        )
    found = _FUNCTIONS[name]
    home = str(getattr(found, "__module__", ""))
    if not own and not any(home == t or home.startswith(f"{t}.") for t in trust):
        raise MigrationError(
            f"expected a trusted function, got {name!r}, which the documents inside the bundle ask for",
            code="NQX312",
            hint=Hint(
                "look at the step, then pass ",
                Keyword("trust", [home]),
                ", or the schema's own files: ",
                Keyword("schema", "schemas/..."),
            ),
        )
    return found


# ---------------------------------------------------------------------------------------------------------------------
# python


def _python(step: Python, scope: Scope) -> Document:
    document, target = scope.document, scope.target
    require_single(document, scope.name, "in")
    for field in step.reads:
        _require_plain(scope.field(field, "reads"), document, field, "reads")
    wanted = scope.wanted
    for field in step.writes:
        if field not in wanted:
            hint = "a step writes fields of the new version, under their names there"
            where = f"a stored field of {scope.name} in version {target.version}"
            hint = did_you_mean(field, wanted) or hint
            refuse("NQX304", "writes", f"expected {where}, got {field!r}", hint)
    changed = [field for field in step.writes if field in scope.struct.stored]
    # Structs and enums that only these fields hold are those of the new version, as the function gives them.
    document = scope.replaced(changed, {})
    if changed and step.inverse is None and not step.lossy:
        names = ", ".join(changed)
        message = f"expected inverse or lossy: true beside a step that changes {names}, got neither"
        hint = (
            "name the function that leads back as `inverse: ...`; `lossy: true` gives up downgrades"
        )
        refuse("NQX308", "writes", message, hint)
    for field in step.writes:
        document = with_named(document, wanted[field].declared, target)
    written = {field: wanted[field] for field in step.writes}
    made = scope.moved(document).with_fields({**scope.struct.fields, **written})
    for field in step.writes:
        _require_plain(wanted[field], made, field, "writes")
    return made


def _require_plain(
    declaration: FieldDeclaration, document: Document, field: str, member: str
) -> None:
    """Checks that a field holds no keys, also in structs."""
    for _, held in types_across(document, declaration.declared):
        if held.key_impl:
            shown = f"{field!r}, which holds {format_type(held)}"
            message = f"expected fields of plain values, arrays and structs of these, got {shown}"
            hint = "`unwrap_key` makes an array of a key, in a step before"
            refuse("NQX304", member, message, hint)


def _python_payload(step: Python, place: Place) -> Node:
    call = place.workspace.function(step.function)
    given = {name: _value(place, name) for name in step.reads}
    try:
        result: Any = call(given)
    except (Exception, SystemExit) as error:
        got = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise _failed(step, place, got) from error
    if not isinstance(result, Mapping):
        raise _failed(step, place, f"a {type(result).__name__}")
    if missing := [name for name in step.writes if name not in result]:
        raise _failed(step, place, f"none for {', '.join(missing)}")
    if undeclared := [str(name) for name in result if name not in step.writes]:
        wanted = f"expected {step.function} to write {', '.join(step.writes)}"
        hint = f"declare it: `writes: [{', '.join([*step.writes, *undeclared])}]`"
        raise place.error("NQX311", f"{wanted}, got {', '.join(undeclared)} too", hint=hint)
    changed = place.with_fields({name: _node(place, name, result[name]) for name in step.writes})
    wrong = []
    for found in conform(place.after, place.struct, changed, see_node):
        written = any(found.path.startswith(f"$.{name}") for name in step.writes)
        if written and found.severity == "error":
            message = f"{found.message}\n{step.function} gave it"
            path = format_path(place.path) + found.path.removeprefix("$")
            wrong.append(replace(found, message=message, path=path))
    if wrong:
        raise MigrationError(wrong)
    return changed


def _failed(step: Python, place: Place, got: str) -> MigrationError:
    wanted = f"a mapping with {', '.join(step.writes)}"
    message = f"expected {step.function} to give {wanted}, got {got}"
    hint = "nothing was written; fix the function, or the step that names it"
    return place.error("NQX312", message, hint=hint)


def _value(place: Place, name: str) -> Any:
    """A field as a plain value, with read-only arrays, and dicts of fields in place of structs."""
    from neuralqx_struct.codecs.nodes import Decoder
    from neuralqx_struct.codecs.plain import PLAIN_CODECS

    node = _without_structs(place.field(name))
    arrays = {}
    for path, inner in iter_nodes(node):
        if isinstance(inner, dict) and inner["__kind__"] not in PLAIN_CODECS.by_kind:
            message = f"expected plain values and arrays for a python step, got {shown_node(inner)}"
            raise place.error("NQX312", message, name, *path)
        if ARRAY.matches(inner):
            array = place.load(inner).read().view()
            array.flags.writeable = False
            arrays[inner["name"]] = array
    decoder = Decoder(PLAIN_CODECS, arrays)
    value = decoder.decode(node)
    decoder.finish()
    return value


def _without_structs(node: Node) -> Node:
    """A node with dicts of their fields in place of the structs that a schema declares."""
    tree = copied([node])
    for _, inner in [*iter_nodes(tree[0])]:
        if STRUCT.matches(inner) and is_schema_ref(inner["type"]):
            fields = [[str(key), item] for key, item in inner["fields"].items()]
            inner.clear()
            inner.update(DICT.node(items=fields))
    return tree[0]


def _node(place: Place, name: str, value: Any) -> Node:
    """The node of a value, with structs where the declaration has them. Inverse of :func:`_value`.

    Its arrays are leaves of the kind that the field held.
    """
    import numpy as np

    from neuralqx_struct.codecs.arrays import encode_array
    from neuralqx_struct.codecs.nodes import Codec, Encoder
    from neuralqx_struct.codecs.plain import PLAIN_CODECS

    def encode(value: Any, encoder: Encoder) -> Mapping[str, Node]:
        return encode_array(np.asarray(value), encoder)

    jax_codec = Codec(ARRAY, (), encode, PLAIN_CODECS.by_kind["array"].decode, _is_jax_array)
    encoder = Encoder(PLAIN_CODECS.extended([jax_codec]), copy=True)
    node = encoder.encode(value, FieldName(name))
    encoder.finish()
    before = iter_nodes(place.node["fields"].get(name))
    leaves = {inner.get("leaf") for _, inner in before if ARRAY.matches(inner)}
    for _, inner in iter_nodes(node):
        if not ARRAY.matches(inner):
            continue
        array = encoder.arrays[inner["name"]]
        made_of = (PYTHON.model.name, id(array))
        held = computed(inner["dtype"], array.shape, partial(_same, array))
        made = place.workspace.store(held, made_of)
        inner["name"] = made["name"]
        inner.pop("leaf", None)
        if leaves == {"numpy"}:
            inner["leaf"] = "numpy"
    declared = place.after.structs[place.struct].fields[name].declared
    return declared.fitted(node, Fit(place.after))


def _is_jax_array(value: Any) -> bool:
    """True for arrays of JAX, but not for keys: only a function that imported JAX can give them."""
    jax: Any = sys.modules.get("jax")
    if jax is None or not isinstance(value, jax.Array):
        return False
    return not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def _same(array: np.ndarray) -> np.ndarray:
    return array


def _python_back(step: Python, scope: Scope, after: Document) -> list[Step]:
    old, new = scope.struct.stored, scope.moved(after).struct.stored
    changed = [field for field in step.writes if field in old]
    back: list[Step] = []
    if changed:
        if step.inverse is None:
            wanted = f"a function that leads back to {', '.join(changed)}"
            hint = f"a downgrade to version {scope.document.version} needs `inverse:` in the step"
            message = f"expected {wanted}, got a step with lossy: true"
            refuse("NQX423", "function", message, hint)
        reads = dict.fromkeys([*step.writes, *step.reads])
        back.append(
            Python(
                function=step.inverse,
                inverse=step.function,
                reads=[field for field in reads if field in new],
                writes=changed,
            )
        )
    appeared = [field for field in step.writes if field not in old]
    back += [Remove(field=field, lossy=True) for field in appeared]
    return back


def python(
    *,
    function: str | Function,
    reads: Sequence[str],
    writes: Sequence[str],
    inverse: str | Function | None = None,
    lossy: bool = False,
    within: str | None = None,
) -> Python:
    """A registered function computes fields from fields; see :func:`function`.

    Raises:
        TypeError: A function is given that is not registered.
    """
    given: dict[str, Any] = {"within": within, "function": name_of(function)}
    if inverse is not None:
        given["inverse"] = name_of(inverse)
    if lossy is not False:
        given["lossy"] = lossy
    return built(Python, **given, reads=reads, writes=writes)


def _reads_whole(step: Python, scope: Scope) -> Iterator[Diagnostic]:
    """Yields NQX317: other steps wait until an array is read."""
    message = (
        f"expected steps that wait until an array is asked for, got a function of {', '.join(step.reads)}\n"
        f"each load of version {scope.document.version} reads them whole and runs it"
    )
    hint = "fine; `neuralqx-struct migrate` does it once for all loads"
    yield Diagnostic("NQX317", "info", message, hint=hint)


PYTHON = StepKind(
    model=Python,
    declare=_python,
    rewrite=_python_payload,
    inverse=_python_back,
    cost="opaque",
    functions=lambda step: (step.function,),
    review=_reads_whole,
)
