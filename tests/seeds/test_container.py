"""Each sentence of the document that containers follow, in its order; "inside defn" is inside a transformation here."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import container
from tests.builders import every, refused


@container.derive(containers=["field_name", "other_field"])
@dataclasses.dataclass
class Derived:
    field_name: Any = 0.0
    other_field: Any = 0.0
    another_field: Any = "default"


@container.derive(containers=["field_name", "other_field"], keep=["another_field"])
@dataclasses.dataclass
class Keeping:
    field_name: Any = 0.0
    other_field: Any = 0.0
    another_field: Any = "default"
    rest: Any = None


class Plain:
    """No container until somebody says so: the decorator is called like a function."""

    def __init__(self, x=0.0):
        self.x = x


container.derive(containers=["x"])(Plain)


class Model(s.Struct):
    w: object
    name: str = s.field(static=True, default="model")
    log: object = s.field(pytree=False, default=None, reset=True)


ALL = [
    1.5,
    jnp.ones(2),
    (1.0, jnp.ones(2)),
    {"a": 1.0, "b": {3: jnp.ones(2)}},
    Derived(1.0, jnp.ones(2)),
    Keeping((1.0, 2.0), {"x": Derived(3.0)}),
    Plain(4.0),
    Model(w=jnp.ones(2)),
]


@every("obj", ALL)
def test_transformations_take_containers_and_return_them(obj):
    """A protocol that teaches defn how to traverse data structures: numbers, tuples, maps of any key, any struct."""
    back = jax.jit(lambda x: jax.tree.map(lambda leaf: leaf + 1, x))(obj)
    assert type(back) is type(obj) or isinstance(back, jax.Array)
    assert [float(np.sum(leaf)) for leaf in jax.tree.leaves(back)] == [
        float(np.sum(np.asarray(leaf) + 1)) for leaf in jax.tree.leaves(obj)
    ]


def test_inside_any_container_can_be_made_and_what_comes_out_must_be_one():
    """Arguments are (lazy) containers, and a data structure that is a Container is returned; inside, any can be used."""

    @jax.jit
    def f(x):
        inner = Keeping((x, {"y": x + 1}), Plain(x * 2), "made inside", rest=[1])
        return {"all": (inner, Model(w=x))}

    out = jax.jit(lambda x: f(x)["all"])(jnp.ones(2))
    assert (type(out[0]), out[0].another_field, out[0].rest) == (Keeping, "made inside", None)
    assert out[0].field_name[1]["y"].tolist() == [2.0, 2.0] and out[1].w.tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="Dataset"):
        jax.jit(lambda x: Dataset("x.csv"))(1.0)


def test_maps_of_keys_that_jax_cannot_sort_are_walked():
    new, count = container.traverse_deep(
        {1: 1.0, "a": 2.0, (1, 2): 3.0}, 0, lambda x, n: (x + 1, n + 1)
    )
    assert (new, count) == ({1: 2.0, "a": 3.0, (1, 2): 4.0}, 3)


class Dataset:
    """Not meant to work inside a transformation."""

    def __init__(self, path):
        self.path = path

    def read(self):
        return {"x": jnp.arange(3.0), "name": Plain(1.0)}


container.register_lazy(Dataset, Dataset.read)


def test_lazy_containers_are_converted_on_the_way_in():
    """LazyContainer converts data structures that are not meant to work inside defn into a Container."""
    with pytest.raises(TypeError):
        jax.jit(lambda data: data)(Dataset("x.csv"))
    converted = container.to_container((Dataset("x.csv"), 1.0))
    assert jax.jit(lambda data: data[0]["x"].sum() + data[0]["name"].x + data[1])(converted) == 5.0


@every("obj", ALL)
def test_lazy_is_provided_for_all_containers(obj):
    """LazyContainer is automatically provided for all data structures that implement Container."""
    assert jax.tree.structure(container.to_container(obj)) == jax.tree.structure(obj)


def test_containers_are_required_and_a_list_of_fields():
    """The :containers option is required and it must specify a list of fields that contains tensors or containers."""
    with pytest.raises(TypeError):
        container.derive(keep=["a"])
    with refused(TypeError, "derive()", "'field_name'"):
        container.derive(containers="field_name")


def test_container_fields_are_traced_and_all_others_are_reset_inside_and_after():
    """Inside defn, the container fields become tensor expressions; all other fields are reset to their default value."""
    seen = []

    @jax.jit
    def f(obj):
        seen.append((obj.field_name, obj.other_field, obj.another_field))
        return obj

    given = Derived(1.0, (2.0, Plain(3.0)), "mine")
    out = f(given)
    first, second, other = seen[0]
    assert all(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((first, second)))
    assert other == out.another_field == "default"
    assert given.another_field == "mine", "what was given is not touched"


def test_kept_fields_keep_their_value_inside_and_after():
    """... unless you explicitly declare them to be kept."""
    seen = []

    @jax.jit
    def f(obj):
        seen.append((obj.another_field, obj.rest))
        return obj

    out = f(Keeping(1.0, 2.0, "mine", rest=[1]))
    assert seen == [("mine", None)]
    assert (out.another_field, out.rest) == ("mine", None)


@pytest.mark.parametrize("wrap", [jax.jit, jax.vmap, jax.grad, jax.checkpoint])
def test_the_reset_is_the_same_in_every_transformation(wrap):
    seen = []

    def f(obj):
        seen.append((obj.another_field, obj.rest))
        return jnp.sum(obj.field_name * obj.other_field)

    wrap(f)(Keeping(jnp.ones(2), jnp.ones(2), "mine", rest=[1]))
    assert seen[0] == ("mine", None)


def test_a_kept_field_is_part_of_the_cache_key_and_others_are_not():
    """If you keep a field, its value will be part of the compiler cache key: compiled and cached twice."""
    f = jax.jit(lambda obj: obj.field_name)
    for kept, rest in (("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5)):
        f(Keeping(1.0, 2.0, kept, rest))
    assert f._cache_size() == 2


# --- serialization -------------------------------------------------------------------------------------------------


def test_derive_defines_serialization_with_containers_and_kept_fields(tmp_path):
    """If you derive, it will automatically define a serialization function with the container and keep fields."""
    obj = Keeping(jnp.arange(3.0), (1.0, Plain(2.0)), "mine", rest=[1])
    kind, items, metadata = container.serialize(obj)
    assert kind is Keeping
    assert dict(items) == {"field_name": obj.field_name, "other_field": obj.other_field}
    assert metadata == {"another_field": "mine"}
    back = s.load(s.export(obj, tmp_path / "ckpt"))
    assert (type(back), back.another_field, back.rest, back.field_name.tolist()) == (
        Keeping,
        "mine",
        None,
        [0, 1, 2],
    )
    assert (back.other_field[0], type(back.other_field[1]), back.other_field[1].x) == (
        1.0,
        Plain,
        2.0,
    )


def test_removing_fields_is_an_error_that_names_them():
    """Removing fields will lead to crashes; here to an error that says which."""
    with refused(s.SerializationError, "NQX415", "Keeping.gone"):
        container.deserialize(Keeping, [("field_name", 1.0), ("gone", 2.0)], {"another_field": "x"})


def test_a_changed_type_may_still_be_the_old_one():
    """If you change the type of a field value, previously serialized structs may still hold the old type."""
    assert container.deserialize(Keeping, [("field_name", "text")], {}).field_name == "text"


def test_new_fields_get_their_default_value():
    """If you add new fields, previously serialized structs won't have them and get the default value."""
    back = container.deserialize(Keeping, [("field_name", 1.0)], {})
    assert (back.field_name, back.other_field, back.another_field) == (1.0, 0.0, "default")


# --- functions -----------------------------------------------------------------------------------------------------

NESTED = Keeping((1.0, (2.0, 3.0)), Plain(4.0), "mine")


def test_reduce_is_called_with_each_tensor_or_container_and_gives_the_final_accumulator():
    """reduce: fun is invoked with each tensor or tensor container plus an accumulator; it must return the new one."""
    assert container.reduce(NESTED, [], lambda value, acc: [*acc, value]) == [
        NESTED.field_name,
        NESTED.other_field,
    ]


def test_reduce_is_not_recursive_and_there_is_a_recursive_variant():
    assert container.reduce(NESTED, 0, lambda _, n: n + 1) == 2
    assert container.reduce_deep(NESTED, 0.0, lambda value, total: total + value) == 10.0


def test_traverse_gives_the_updated_container_and_the_accumulator():
    """traverse: fun must return a two element tuple with the updated value and accumulator."""
    new, acc = container.traverse(NESTED, 0, lambda value, n: (n, n + 1))
    assert (type(new), new.field_name, new.other_field, new.another_field, acc) == (
        Keeping,
        0,
        1,
        "mine",
        2,
    )


def test_traverse_is_not_recursive_and_there_is_a_recursive_variant():
    new, acc = container.traverse_deep(NESTED, [], lambda value, seen: (-value, [*seen, value]))
    assert acc == [1.0, 2.0, 3.0, 4.0]
    assert (new.field_name, new.other_field.x, new.another_field) == (
        (-1.0, (-2.0, -3.0)),
        -4.0,
        "mine",
    )


def test_a_function_that_returns_no_pair_is_an_error():
    with pytest.raises(TypeError):
        container.traverse((1.0,), 0, lambda value, acc: 3)


# --- serialize and deserialize of one's own ------------------------------------------------------------------------


def split_off(obj):
    """What is saved of a Sampler: the words of its state as a container, the rest beside it."""
    return [("chain", obj.chain), (0, {"half": obj.chain / 2})], {"made": obj.made, "version": 2}


def put_together(items, metadata):
    assert [key for key, _ in items] == ["chain", 0]
    assert metadata["version"] == 2
    sampler = Sampler(dict(items)["chain"])
    sampler.made = f"{metadata['made']}, saved"
    return sampler


@container.derive(containers=["chain"], serialize=split_off, deserialize=put_together)
class Sampler:
    def __init__(self, chain=0.0):
        self.chain, self.made = chain, "here"


def test_a_type_defines_how_it_is_serialized():
    """It must return {module, list of {key, container}, metadata}, and on deserialization that module is asked."""
    kind, items, metadata = container.serialize(Sampler(jnp.ones(2)))
    assert (kind, [key for key, _ in items], metadata) == (
        Sampler,
        ["chain", 0],
        {"made": "here", "version": 2},
    )
    assert container.deserialize(kind, items, metadata).made == "here, saved"


def test_bundles_use_what_the_type_defines(tmp_path):
    path = s.export({"sampler": Sampler(jnp.arange(2.0))}, tmp_path / "ckpt")
    back = s.load(path)["sampler"]
    assert (type(back), back.chain.tolist(), back.made) == (Sampler, [0.0, 1.0], "here, saved")
    halves = [row for row in s.inspect(path).rows if "half" in row.path]
    assert [row.type for row in halves] == ["float32[2]"], "containers are serialized further"


def test_stored_parts_of_such_a_type_are_checked():
    state = s.to_state_dict(Sampler(1.0))
    state["manifest"]["payload"]["items"].pop()
    with refused(s.SerializationError, "NQX401", "Sampler"):
        s.from_state_dict(state)


def test_serialize_and_deserialize_come_together():
    with refused(ValueError, "derive()"):
        container.derive(containers=["x"], serialize=split_off)


# --- templates -----------------------------------------------------------------------------------------------------


@every("obj", ALL)
def test_templates_have_shapes_and_dtypes_and_are_compatible(obj):
    template = container.to_template(obj)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(template))
    assert container.compatible(obj, template)
    assert container.compatible(template, jax.eval_shape(lambda x: x, obj))
    assert not container.compatible(obj, (obj, obj))


# --- the guide -----------------------------------------------------------------------------------------------------


def test_the_guide_has_every_function_and_word_of_the_document(root):
    told = (root / "docs/from_nx.md").read_text()
    container_functions = ["traverse", "reduce", "serialize"]
    composite_functions = ["traverse", "reduce", "count", "flatten_list", "compatible?"]
    words = [
        *(f"Nx.Container.{name}" for name in container_functions),
        *(f"Nx.Defn.Composite.{name}" for name in composite_functions),
        *(
            "@derive",
            "containers:",
            "keep:",
            "defstruct",
            "defimpl",
            "Nx.LazyContainer",
            "module.deserialize",
            "defn",
        ),
        *(
            "cache key",
            "maps of any key",
            "reset to their default",
            "removing fields",
            "old type",
            "new fields",
        ),
    ]
    assert [word for word in words if word.removeprefix("Nx.Defn.Composite.") not in told] == []
    assert [name for name in container.__all__ if f"c.{name}" not in told] == []
