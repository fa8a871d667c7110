"""Fields of schema-made classes: defaults as arguments of ``field()``, and derived fields as functions of instances.

The sizes of an array such as ``float32[n]``, and the dtype of a choice, are those that the other fields of an instance fix:
:class:`SizedDefault` takes the place of its default until they are known.

Example:
    >>> from neuralqx_struct.expressions import parse
    >>> from types import SimpleNamespace
    >>> derivation(parse("4 * alpha + 1"))(SimpleNamespace(alpha=2))
    9
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from neuralqx_struct.errors import Diagnostic, SchemaError, ValidationError
from neuralqx_struct.expressions import Expression
from neuralqx_struct.expressions.evaluation import evaluate, evaluate_tree
from neuralqx_struct.expressions.functions import Items, names_read
from neuralqx_struct.paths import FieldName
from neuralqx_struct.schema.conformance import Seen, conform, size_scopes
from neuralqx_struct.schema.model import Document, FieldDeclaration
from neuralqx_struct.schema.results import as_declared
from neuralqx_struct.schema.sizes import ANY_SIZE
from neuralqx_struct.schema.sizes.solver import Solver
from neuralqx_struct.types import Array
from neuralqx_struct.types.arrays import is_identity
from neuralqx_struct.types.builders import LiveBuilder, require_room
from neuralqx_struct.types.text import format_type, read_value


@dataclass(frozen=True, slots=True, eq=False)
class SizedDefault:
    """The default of a field whose sizes, or dtype, the other fields of an instance fix.

    Attributes:
        make: Returns the value for the sizes of an instance.
    """

    make: Callable[[Solver], Any]

    def __call__(self) -> SizedDefault:
        """Itself, as a factory."""
        return self


def default_of(document: Document, declaration: FieldDeclaration) -> dict[str, Any]:
    """The default as an argument of ``field()``: a factory for values that instances must not share."""
    value, builder = declaration.default, LiveBuilder(document)
    declared = declaration.declared
    arrays: list[Array] = []
    builder.make_array = lambda array, _: arrays.append(array)
    made = read_value(value, declared, builder)
    if builder.shared:
        return {"default": made}

    def make(sizes: Solver) -> Any:
        sized = LiveBuilder(document, make_array=functools.partial(_array, sizes))
        return read_value(value, declared, sized)

    names = [size.names for array in arrays for size in array.shape if size is not ...]
    is_sized = any(names) and not isinstance(value, list)
    if is_sized or any(array.choice for array in arrays):
        return {"default_factory": SizedDefault(make)}
    return {"default_factory": functools.partial(make, Solver({}))}


def sized_fields(namespace: Mapping[str, Any]) -> dict[str, Callable[[Solver], Any]]:
    """The fields of a class in the making whose defaults are sized, with the function that makes each."""
    found: dict[str, Callable[[Solver], Any]] = {}
    for name, spec in namespace.items():
        factory = getattr(spec, "default_factory", None)
        if isinstance(factory, SizedDefault):
            hooks = [spec.converter] if spec.converter is not None else []
            found[name] = functools.partial(_converted, factory.make, hooks)
    return found


def _converted(
    make: Callable[[Solver], Any], hooks: list[Callable[[Any], Any]], sizes: Solver
) -> Any:
    value = make(sizes)
    for hook in hooks:
        value = hook(value)
    return value


def _array(known: Solver, declared: Array, value: Any) -> Any:
    """An array of a file: its numbers, one number in every place, or an identity matrix."""
    import jax.numpy as jnp

    declared = declared.as_chosen(known.chosen)
    sizes = [None if extent is ... else known.size(extent) for extent in declared.shape]
    require_room(declared, [each for each in sizes if each is not None])
    if is_identity(value):
        return jnp.eye(_known(sizes, declared)[0], dtype=declared.made_as)
    array = jnp.asarray(value, declared.made_as)
    if isinstance(value, list):
        declared.check_shape(array.shape)
        return array
    if ... in declared.shape:
        return array
    return jnp.broadcast_to(array, _known(sizes, declared))


def _known(sizes: list[int | None], declared: Array) -> tuple[int, ...]:
    known = tuple(size for size in sizes if size is not None and size >= 0)
    if len(known) < len(sizes):
        message = f"expected fields that fix the sizes of the default {format_type(declared)}, got some that do not"
        raise SchemaError(message, code="NQX108", hint="pass the array")
    return known


def complete(
    document: Document,
    struct: str,
    makers: Mapping[str, Callable[[Solver], Any]],
    values: dict[str, Any],
) -> None:
    """Puts values in place of the defaults of which only the sizes, or the dtype, were missing.

    Args:
        document: The schema.
        struct: The struct.
        makers: The functions that make the values for given sizes, by field.
        values: The values of the fields, with a :class:`SizedDefault` for each that is missing; it is changed.

    Raises:
        ValidationError: NQX108: the other fields do not fix the sizes of some, with every problem of those fields before it.
    """
    from neuralqx_struct.documents.live_values import see_value, values_inside

    missing = [name for name in makers if isinstance(values.get(name), SizedDefault)]
    if not missing:
        return
    items = {FieldName(name): each for name, each in values.items() if name not in missing}
    whole = Seen("struct", struct, refs=(document.ref(struct),), items=items)

    def read(value: Any) -> Seen:
        return whole if value is values else see_value(value)

    sizes = size_scopes(document, struct, values, read)[()]
    unknown: list[Diagnostic] = []
    for name in missing:
        try:
            values[name] = makers[name](sizes)
        except SchemaError as error:
            unknown += [replace(each, path=f"$.{name}") for each in error.diagnostics]
    if unknown:  # a fault of the other fields may be the reason
        found = conform(document, struct, values, read, closed=False, inside=values_inside)
        raise ValidationError([*found, *unknown])


_MOST_RESULTS = 64  # of a derived field
_MOST_AXES = 4  # in front of those that arrays declare
_EXACT = frozenset({bool, int, str, type(None)})  # equal values of these types are the same value


def derivation(
    expression: Expression,
    sizes: Callable[[Any], Mapping[str, Any]] | None = None,
    *,
    plain: bool = False,
    shaped: Callable[[Any], Any] = lambda result: result,
    where: str = "",
) -> Callable[[Any], Any]:
    """The function of an instance that computes a derived field.

    It keeps the results for plain values, and for the shapes of JAX arrays where nothing else of them counts.

    Args:
        expression: Its expression.
        sizes: Returns the sizes of an instance that the expression names; None if it names fields alone.
        plain: Whether a result without axes becomes a Python number, as static values need.
        shaped: Returns the result as the declared type has it.
        where: The name of the field in errors.
    """
    from neuralqx_struct.documents.live_values import LiveNames

    heads = [*expression.heads]
    paths = [(ast.Name(name), name) for name in expression.names]
    _, read = names_read(expression.tree)
    results: dict[tuple[Any, ...], Any] = {}

    def key_of(name: str, value: Any) -> Any:
        """None, or a value that is equal only where the result is equal."""
        if type(value) in _EXACT or (type(value) is float and value):  # 0.0 == -0.0
            return type(value), value
        shape = None if name in read else getattr(getattr(value, "aval", None), "shape", None)
        return shape if shape is not None and _EXACT.issuperset(map(type, shape)) else None

    def finished(result: Any) -> Any:
        if type(result) is Items:
            result = tuple(result.values)
        return shaped(_number(result) if plain else result)

    def computed(values: LiveNames) -> Any:
        try:
            return finished(evaluate(expression, values))
        except SchemaError as error:
            if not where:
                raise
            found = error.diagnostics[0]
            message = f"{where}: {found.message}"
            raise SchemaError(message, code=found.code, hint=found.hint) from error

    def derived(self: Any) -> Any:
        known = sizes(self) if sizes is not None else {}
        values = LiveNames(
            {name: known[name] if name in known else getattr(self, name) for name in heads}
        )
        try:
            reached = [
                (name, values[name] if name in values else evaluate_tree(node, values))
                for node, name in paths
            ]
        except SchemaError:  # a condition around it may guard it
            return computed(values)
        key = tuple([key_of(name, value) for name, value in reached])
        if key in results:
            return results[key]
        result = computed(values)
        if None not in key and type(result) in (*_EXACT, float):
            if len(results) >= _MOST_RESULTS:
                results.clear()
            results[key] = result
        return result

    derived.__doc__ = expression.text
    derived.__nqx_pure__ = True  # type: ignore[attr-defined]
    return derived


def shaped_result(
    document: Document, declaration: FieldDeclaration, where: str
) -> Callable[[Any], Any]:
    """A function of the results of a derived field that gives each the form of its type; ``where`` names the field."""

    def see(value: Any) -> Seen:
        from neuralqx_struct.documents.live_values import see_value

        return see_value(value)

    make_array = functools.partial(_array, Solver({}))
    return as_declared(document, declaration, see, where=where, make_array=make_array)


def _number(result: Any) -> Any:
    """The Python number of an array without axes; other results as they are."""
    if not hasattr(result, "shape"):
        return result
    from neuralqx_struct.documents.live_values import number_of_array

    return number_of_array(result)


def sizes_of_instance(
    document: Document, struct: str, names: frozenset[str]
) -> Callable[[Any], Mapping[str, int]] | None:
    """A function that returns some sizes of an instance of a struct; None without names."""
    if not names:
        return None

    def sizes(instance: Any) -> dict[str, int]:
        from neuralqx_struct.documents.live_values import see_value

        missing: list[str] = []
        for lead in range(_MOST_AXES):  # of an instance that was stacked, or made by jax.vmap
            axes = (ANY_SIZE,) * lead
            scope = size_scopes(document, struct, instance, see_value, axes).get(())
            known = {} if scope is None else scope.sizes()
            if names <= known.keys():
                break
            missing = missing or sorted(names - known.keys())
        else:
            wrong = type(instance).__nqx_check__(instance)
            if wrong:  # an array of the wrong shape shows no size
                raise ValidationError(wrong)
            message = f"expected sizes that the arrays of {struct} show, got {', '.join(missing)}"
            hint = "a list or a dict is empty, or an array null"
            raise SchemaError(message, code="NQX116", hint=hint)
        return {name: known[name] for name in names}

    return sizes
