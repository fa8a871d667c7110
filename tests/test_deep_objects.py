"""Objects that are nested more deeply than the stack: one error of every function, and the stack stays whole."""

import jax
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import container, filters
from neuralqx_struct.errors import within_stack
from tests.builders import bounded, every, refused

FUNCTIONS = {
    "schema_of": lambda _, deep: s.schema_of(deep),
    "split": lambda _, deep: s.split(deep, ...),
    "partition": lambda _, deep: s.partition(deep, ...),
    "combine": lambda _, deep: s.combine({}, deep),
    "map_where": lambda _, deep: s.map_where(deep, ..., abs),
    "stack": lambda _, deep: s.stack([deep, deep]),
    "unstack": lambda _, deep: s.unstack(deep),
    "axes": lambda _, deep: filters.axes(deep, {...: 0}),
    "shardings": lambda _, deep: s.shardings(deep, jax.make_mesh((1,), ("x",)), {}),
    "load": lambda saved, deep: s.load(saved, shardings=deep),
    "traverse_deep": lambda _, deep: container.traverse_deep(deep, 0, lambda leaf, n: (leaf, n)),
    "reduce_deep": lambda _, deep: container.reduce_deep(deep, 0, lambda _, n: n),
    "to_template": lambda _, deep: container.to_template(deep),
    "compatible": lambda _, deep: container.compatible(deep, deep),
}


def nested(wrap):
    value = np.ones(2)
    for _ in range(20_000):  # Python 3.13 takes 10,000 levels in C
        value = wrap(value)
    return value


def room():
    """The number of calls that the stack of this thread still takes."""
    try:
        return 1 + room()
    except RecursionError:
        return 0


@every("name", FUNCTIONS)
@every("wrap", [lambda value: [value], lambda value: {"a": value}])
def test_a_deep_object_has_one_error(tmp_path, name, wrap):
    saved = s.export({"w": np.ones(2)}, tmp_path / "ckpt")
    before = room()
    with bounded(), refused(s.SerializationError, "NQX005"):
        FUNCTIONS[name](saved, nested(wrap))
    assert room() > before - 20


@pytest.mark.parametrize("save", [s.to_state_dict, s.export])
def test_a_deep_object_is_not_saved(tmp_path, save):
    with refused(s.SerializationError, "NQX430"):
        save(nested(lambda value: [value]), *[tmp_path / "ckpt"] * (save is s.export))


def test_deep_metadata_are_refused(tmp_path):
    with refused(s.SerializationError, "NQX430"):
        s.export({"w": 1}, tmp_path / "ckpt", metadata={"a": nested(lambda value: [value])})


def test_other_errors_of_the_system_stay():
    @within_stack
    def fails():
        raise SystemError("another")

    with pytest.raises(SystemError, match="another"):
        fails()
