"""`stack` and `unstack` are inverse to each other, bit by bit, for every kind of array; errors name the place."""

from collections import namedtuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.struct.equality import is_key_array
from tests.builders import cases, every, refused, stands_in

Pair = namedtuple("Pair", "left right")


class Layer(s.Struct):
    kernel: object
    rest: object = None
    rate: float = s.field(static=True, default=0.5)
    hook: object = s.field(pytree=False, default=None)
    size: int = s.field(static=True, derived=lambda self: np.size(self.kernel))


DTYPES = ["float32", "int8", "bool", "complex64", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]


def bits(leaf):
    if is_key_array(leaf):
        leaf = jax.random.key_data(leaf)
    form = type(leaf).__name__, str(leaf.dtype), leaf.shape, getattr(leaf, "weak_type", None)
    return form, np.asarray(leaf).tobytes()


def same(a, b):
    """Whether two pytrees have one structure, and leaves of the same library, dtype, shape and bits."""
    (left, one), (right, other) = jax.tree.flatten(a), jax.tree.flatten(b)
    return one == other and [*map(bits, left)] == [*map(bits, right)]


@st.composite
def arrays(draw, count):
    """So many arrays of one form, with random bits."""
    kind = draw(st.sampled_from(["numpy", "jax", "weak", "key"]))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    seeds = draw(st.lists(st.integers(0, 2**31), min_size=count, max_size=count))
    if kind == "key":
        keys = [jax.random.key(seed, impl="rbg") for seed in seeds]
        size = int(np.prod(shape, dtype=int))
        return [jax.random.split(key, size).reshape(shape) for key in keys] if size else keys
    if kind == "weak":
        return [jax.jit(lambda: jnp.broadcast_to(1.5, shape))() for _ in seeds]
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    made = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        words = random.integers(0, 256, (*shape, dtype.itemsize), np.uint8)
        words = words & 1 if dtype.name == "bool" else words
        made.append(words.reshape(-1).view(dtype).reshape(shape))
    return made if kind == "numpy" else [*map(jnp.asarray, made)]


@st.composite
def trees(draw):
    """A list of pytrees of one structure."""
    count = draw(st.integers(1, 3))
    columns = [draw(arrays(count)) for _ in range(draw(st.integers(1, 4)))]
    shape = draw(st.sampled_from(["struct", "list", "pair", "nested"]))
    made = []
    for row in zip(*columns, strict=True):
        first, *others = row
        match shape:
            case "struct":
                made.append(Layer(first, others))
            case "list":
                made.append([first, {"b": others}])
            case "pair":
                made.append(Pair(first, None if not others else others[0]))
            case "nested":
                made.append(Layer(first, Layer(first, (others, None), rate=0.25)))
    return made


@given(trees())
@settings(max_examples=cases(60))
def test_they_are_inverse_to_each_other(items):
    stacked = s.stack(items)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(stacked)} == {len(items)}
    assert jax.tree.structure(stacked) == jax.tree.structure(items[0])
    back = s.unstack(stacked)
    assert len(back) == len(items)
    assert all(map(same, back, items))
    assert same(s.stack(back), stacked)
    for index in (0, -1):
        assert same(s.unstack(stacked, index), items[index])


def test_they_run_under_jit_and_scan():
    items = [Layer(jnp.full(2, float(i)), jax.random.key(i)) for i in range(3)]
    stacked = jax.jit(lambda *items: s.stack(items))(*items)
    assert stacked == s.stack(items)
    assert jax.jit(s.unstack)(stacked) == items
    assert jax.jit(s.unstack)(stacked, 2) == items[2]  # the index is traced
    total, rates = jax.lax.scan(
        lambda sum_, layer: (sum_ + layer.kernel, layer.rate), jnp.zeros(2), stacked
    )
    assert total.tolist() == [3.0, 3.0]
    assert rates.tolist() == [0.5] * 3


def test_numpy_arrays_stay_numpy_arrays_also_without_axes():
    items = [Layer(np.float32(1.5), np.zeros(())), Layer(np.float32(2.5), np.ones(()))]
    back = s.unstack(s.stack(items))
    assert type(back[1].rest) is np.ndarray and back[1].rest.shape == ()
    assert (
        back[1].kernel == 2.5 and back[1].kernel.dtype == "float32"
    )  # a scalar of numpy comes back as an array
    indexed = jax.jit(lambda index: s.unstack(np.arange(3), index))
    assert int(indexed(1)) == 1


def test_derived_fields_of_the_stacked_struct_are_those_of_its_arrays():
    stacked = s.stack([Layer(jnp.zeros(2))] * 3)
    assert stacked.size == 6
    assert s.unstack(stacked, 0).size == 2


def differences(call, *args):
    with pytest.raises(s.ValidationError) as caught:
        call(*args)
    assert {each.code for each in caught.value.diagnostics} == {"NQX432"}
    return [(each.path, each.message) for each in caught.value.diagnostics]


ONE = jnp.ones(2)


@every(
    ("items", "path", "named"),
    [
        ([], "$", []),
        ([Layer(None)], "$", []),
        (
            [Layer(ONE), Layer(ONE, rate=0.25)],
            "$.rate",
            ["0.5", "item 0", "0.25", "item 1"],
        ),
        ([Layer(ONE, rate=0.0), Layer(ONE, rate=-0.0)], "$.rate", ["0.0", "-0.0", "item 1"]),
        ([Layer(ONE, hook=print), Layer(ONE, hook=len)], "$.hook", ["print", "len"]),
        ([Layer(ONE), Layer(ONE, ONE)], "$.rest", ["None", "item 0"]),
        (
            [Layer(ONE, [ONE]), Layer(ONE, [ONE, ONE])],
            "$.rest[1]",
            ["item 0", "float32[2]", "item 1"],
        ),
        ([Layer(ONE, Layer(ONE)), Layer(ONE, Layer(ONE, rate=1.0))], "$.rest.rate", ["1.0"]),
        ([Layer(ONE), [ONE]], "$", ["item 1"]),
        ([Layer(ONE), Layer(np.ones(2, "float32"))], "$.kernel", ["jax", "item 0", "numpy"]),
        ([Layer(ONE), Layer(jnp.ones(3))], "$.kernel", ["float32[3]"]),
        ([Layer(ONE), Layer(jnp.ones(2, int))], "$.kernel", ["int32[2]"]),
        ([Layer(2.0)], "$.kernel", ["2.0", "item 0"]),
    ],
)
def test_items_that_cannot_be_stacked(items, path, named):
    ((where, message),) = differences(s.stack, items)
    assert where == path
    assert all(stands_in(each, message) for each in named)


def test_keys_that_differ_are_named_each():
    items = [Layer(ONE, {"a": ONE}), Layer(ONE, {"b": ONE})]
    assert [path for path, _ in differences(s.stack, items)] == ["$.rest['a']", "$.rest['b']"]


@pytest.mark.parametrize(
    ("other", "named", "hint"),
    [
        (jnp.ones(3), ["item 0", "float32[3]"], "list[...]"),
        (jnp.ones(2, int), ["item 0", "int32[2]"], "astype('float32')"),
        (np.ones(2, "float32"), ["jax", "item 0", "numpy"], "jnp.asarray"),
        (jnp.broadcast_to(jnp.asarray(1.0), 2), ["float32[2]", "item 1"], "'float32')"),
    ],
)
def test_arrays_that_differ_are_named_with_the_fix(other, named, hint):
    with pytest.raises(s.ValidationError) as caught:
        s.stack([ONE, other])
    (found,) = caught.value.diagnostics
    assert all(stands_in(each, found.message) for each in named)
    assert hint in found.hint


def test_all_problems_are_reported_at_once_and_bounded():
    items = [Layer(ONE, {"a": ONE, "b": 1}), Layer(jnp.ones(3), {"a": np.ones(2), "b": 1})]
    assert [path for path, _ in differences(s.stack, items)] == [
        "$.kernel",
        "$.rest['a']",
        "$.rest['b']",
    ]
    assert len(differences(s.stack, [[1.0] * 100])) == 20


def test_static_values_without_a_place_are_reported_for_the_whole():
    @jax.tree_util.register_pytree_node_class
    class Odd:
        def __init__(self, x, aux):
            self.x, self.aux = x, aux

        def tree_flatten(self):
            return (self.x,), self.aux

        @classmethod
        def tree_unflatten(cls, aux, children):
            return cls(*children, aux)

    assert differences(s.stack, [Odd(ONE, 1), Odd(ONE, 2)])[0][0] == "$"


@pytest.mark.parametrize("items", ["ab", {"a": 1}, 3, Layer(ONE)])
def test_stack_takes_a_list(items):
    with refused(TypeError, "stack()", repr(items)):
        s.stack(items)


@pytest.mark.parametrize(
    ("stacked", "path"),
    [
        (None, "$"),
        (3, "$"),
        (jnp.ones(()), "$"),
        (Layer(ONE, jnp.ones(3)), "$.rest"),
        (Layer(ONE, 1.0), "$.rest"),
        (Layer(2.0, ONE), "$.kernel"),
    ],
)
def test_what_cannot_be_unstacked(stacked, path):
    ((where, _),) = differences(s.unstack, stacked)
    assert where == path


def test_the_number_of_an_item_is_checked():
    for index in (2, -3):
        with refused(IndexError, index):
            s.unstack(ONE, index)
    with pytest.raises(TypeError):
        s.unstack(ONE, "a")
    assert s.unstack(jnp.ones((0, 2))) == []
