"""Limits of fields compare numbers as expressions do, whatever holds them: Python, numpy or JAX, with any dtype."""

import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import has_errors
from neuralqx_struct.tools.linting import lint
from tests.builders import every, refused

HOLDERS = {
    "a scalar of numpy": lambda number, dtype: np.dtype(dtype).type(number),
    "an array of numpy": np.array,
    "an array of JAX": lambda number, dtype: jnp.array(number, dtype),
}

#: The type, its limits, a dtype, numbers that the limits take, and numbers that they refuse.
CASES = {
    "beyond the dtype": ("int", {"lt": 1000, "gt": -1000}, "int8", [-128, 127], []),
    "no number of the dtype": ("int", {"ge": 256}, "uint8", [], [0, 255]),
    "within the dtype": ("int", {"ge": -3, "le": 3}, "int8", [-3, 3], [-4, 4]),
    "open": ("int", {"gt": -3, "lt": 3}, "int16", [-2, 2], [-3, 3]),
    "near 2 ** 64": ("int", {"le": 2**64 - 2}, "uint64", [2**64 - 2], [2**64 - 1]),
    "near 2 ** 53": ("int", {"lt": 2.0**53}, "int64", [2**53 - 1], [2**53, 2**53 + 1]),
    "fractions": ("int", {"ge": 1.5, "lt": 3.5}, "int8", [2, 3], [1, 4]),
    "multiples": ("int", {"multiple_of": 5}, "int8", [0, -125, 5], [1, 127]),
    "multiples beyond": ("int", {"multiple_of": 1000}, "int8", [0], [100]),
    "choices": ("int", {"choices": [5, 1000]}, "int8", [5], [-24, 0]),
    "an array": ("int8[]", {"ge": 0}, "int8", [0, 127], [-1, -128]),
    "floats": ("float", {"le": 0.1}, "float32", [0.1, -1], [0.2]),
    "floats that are open": ("float", {"lt": 0.1}, "float32", [0.05], [0.1]),
    "of 16 bits": ("float", {"ge": 0.1, "finite": True}, "float16", [0.1], [0.05, np.inf]),
    "of 16 bits, beyond": ("float", {"lt": 100_000}, "float16", [65504], [np.inf]),
    "bfloat16": ("float", {"le": 0.1}, ml_dtypes.bfloat16, [0.1], [0.11]),
    "not finite": ("float", {"finite": True}, "float32", [1], [np.nan, np.inf, -np.inf]),
    "not a number": ("float", {"ge": 0}, "float32", [np.inf], [np.nan]),
    "multiples of a fraction": ("float", {"multiple_of": 0.1}, "float32", [0.3, 0.7], [0.35]),
    "choices of fractions": ("float", {"choices": [0.1, 0.5]}, "float32", [0.1], [0.3]),
    "complex choices": ("complex", {"choices": ["1+0.1j"]}, "complex64", [1 + 0.1j], [1]),
}  # fmt: skip
ROWS = [
    pytest.param((*case[:3], number, number in case[3]), id=f"{name}: {number}")
    for name, case in CASES.items()
    for number in (*case[3], *case[4])
]


def schema_of(declared, limits, **others):
    field = {"type": declared, **limits}
    data = {"language": "1", "schema": "test.limits", "version": 1, "root": "R"}
    data["structs"] = {"R": {"fields": {"x": field}, **others}}
    return s.load_schema(json.dumps(data, indent=1))


@every("holder", HOLDERS)
@every("row", ROWS)
def test_limits_hold_for_all_numbers(tmp_path, row, holder):
    declared, limits, dtype, number, fine = row
    schema = schema_of(declared, limits)
    with jax.enable_x64(True):
        value = HOLDERS[holder](number, dtype)
        path = tmp_path / "ckpt"
        if fine:
            made = schema.R(x=value)
            made.export(path)
            assert s.validate(path) == []
            assert schema.load(path) == made
            return
        made = unchecked(schema, value)
        for refused in (lambda: schema.R(x=value), lambda: made.export(path)):
            with pytest.raises(s.StructError) as caught:
                refused()
            assert [(d.code, d.path) for d in caught.value.diagnostics] == [("NQX416", "$.x")]
        made.export(path, check=False)
        with pytest.raises(s.StructError) as caught:
            schema.load(path)
    assert {d.code for d in caught.value.diagnostics} == {"NQX416"}
    # Validation reads no bytes of arrays: the number of a scalar is in the manifest.
    assert has_errors(s.validate(path)) is isinstance(value, np.generic)


def unchecked(schema, value):
    """An instance that a transformation made."""
    abstract = jax.eval_shape(lambda x: schema.R(x=x), jnp.zeros((), value.dtype))
    return jax.tree.unflatten(jax.tree.structure(abstract), [value])


def test_numbers_of_arrays_are_not_remembered():
    schema = schema_of("int", {"le": 3})
    for number in (3, 3, 4):
        for convert in (np.array, jnp.array):
            if number <= 3:
                schema.R(x=convert(number, np.int8))
                continue
            with refused(s.ValidationError, "NQX416", "$.x", "<= 3", "4"):
                schema.R(x=convert(number, np.int8))


def test_traced_numbers_are_not_compared():
    schema = schema_of("int", {"le": 3})
    made = jax.jit(lambda made: made.replace(x=made.x + 1))(schema.R(x=jnp.array(3)))
    assert int(made.x) == 4  # an export refuses it


LAYERS = {
    "language": "1",
    "schema": "test.layers",
    "version": 1,
    "root": "R",
    "structs": {
        "R": {"fields": {"layers": "Layer[][n]"}},
        "Layer": {"fields": {"rate": {"type": "float32[]", "lt": 1}, "w": "float32[3]"}},
    },
}


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray])
def test_limits_of_stacked_structs_hold_for_each_layer(convert):
    schema = s.load_schema(json.dumps(LAYERS, indent=1))
    for rates, fine in (([0.5, 0.25], True), ([0.5, 1], False)):
        rate, w = (convert(np.array(each, np.float32)) for each in (rates, np.ones((2, 3))))
        layers = jax.tree.unflatten(
            jax.tree.structure(schema.Layer(rate=rate[0], w=w[0])), [rate, w]
        )
        if fine:
            assert schema.R(layers=layers).layers is layers
            continue
        with refused(s.ValidationError, "NQX416", "$.layers.rate", "< 1", "1.0"):
            schema.R(layers=layers)


@every(
    ("declared", "limit", "codes"),
    [
        ("int8[]", {"ge": 0}, []),
        ("int8[]", {"choices": [0, 1]}, []),
        ("int8[n]", {"ge": 0}, ["NQX131"]),
        ("int8[n]", {"choices": [0, 1]}, ["NQX131"]),
        ("list[int]", {"choices": [[0, 1]]}, ["NQX131"]),
        ("bool[]", {"ge": 0}, ["NQX131"]),
        ("int | list[int]", {"choices": [0]}, []),
        ("str", {"choices": ["a"], "kind": "static"}, []),
    ],
)
def test_limits_that_are_not_checked_are_found_by_lint(tmp_path, declared, limit, codes):
    fields = {"x": {"type": declared, **limit}}
    data = {"language": "1", "schema": "test.limits", "version": 1, "root": "R"}
    path = tmp_path / "v1.json"
    path.write_text(json.dumps({**data, "structs": {"R": {"fields": fields}}}))
    found = [d.code for d in lint(path) if d.path.startswith("$.structs")]
    assert found == codes
