"""Objects that a load would refuse: export refuses them with the same finding; raw loads read them anyway."""

import collections
import dataclasses
import enum
import json
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from tests.builders import every, refused

SCHEMA = """
language: "1"
schema: lab.unloadable
version: 1
root: State
dims: {n: {min: 1}}
structs:
  Layer:
    fields: {kernel: "float32[n]"}
  State:
    fields: {layer: Layer, bias: "float32[n]", step: {type: int, kind: static, default: 0}}
"""


def state():
    schema = s.load_schema(SCHEMA)
    layer = schema.Layer(kernel=jnp.ones(3))
    return schema.State(layer=layer, bias=jnp.ones(3))


def assigned(value, name, held):
    """The instance with an attribute that was set around the freeze, after a first read has made attributes."""
    getattr(value, name)
    object.__setattr__(value, name, held)
    return value


CHANGES = {
    "assigned": (lambda x: assigned(x, "bias", jnp.ones(3, jnp.float16)), "$.bias"),
    "unhashable": (lambda x: assigned(x, "step", [0]), "$.step"),
    "cast": (lambda x: jax.tree.map(lambda v: v.astype(jnp.float16), x), "$.layer.kernel"),
    "stacked": (lambda x: jax.tree.map(lambda v: jnp.stack([v, v]), x), "$.layer.kernel"),
    "vmapped": (jax.vmap(lambda x: x, out_axes=0, axis_size=2, in_axes=None), "$.layer.kernel"),
    "none": (lambda x: jax.tree.map(lambda v: None, x), "$.layer.kernel"),
    "one of them": (
        lambda x: jax.tree.unflatten(jax.tree.structure(x), [jnp.ones(3), jnp.ones(2)]),
        "$",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_an_instance_that_no_longer_matches_is_refused_as_a_load_refuses_it(case, tmp_path):
    change, where = CHANGES[case]
    changed = change(state())
    found = []
    for save in (
        lambda: changed.export(tmp_path / "refused"),
        lambda: s.export({"inside": [changed]}, tmp_path / "refused"),
        changed.to_state_dict,
        lambda: s.load(s.export(changed, tmp_path / "saved", check=False)),
        lambda: s.from_state_dict(s.to_state_dict(changed, check=False)),
    ):
        with pytest.raises(s.SerializationError) as caught:
            save()
        found.append([(d.code, d.message, d.path) for d in caught.value.diagnostics])
    assert not (tmp_path / "refused").exists()
    inside = [
        (code, text, path.replace("$['inside'][0]", "$")) for code, text, path in found.pop(1)
    ]
    assert found == [found[0]] * 4 and inside == found[0]
    assert found[0][0][2].startswith(where)


def test_a_raw_load_reads_it(tmp_path):
    halved = jax.tree.map(lambda v: v.astype(jnp.float16), state())
    for raw in (
        s.load(halved.export(tmp_path / "c", check=False), raw=True),
        type(halved).load(tmp_path / "c", raw=True),
        s.from_state_dict(halved.to_state_dict(check=False), raw=True),
    ):
        assert list(raw) == ["layer", "bias", "step"] and raw["step"] == 0
        assert raw["bias"].dtype == jnp.float16 and raw["layer"]["kernel"].shape == (3,)


class Mode(enum.Enum):
    FAST = 1


class Pair(NamedTuple):
    a: object
    b: object


@dataclasses.dataclass
class Plain:
    x: object


class Held(s.Struct):
    value: object
    n: object = s.field(static=True, default=0)


def test_a_raw_load_needs_no_class(tmp_path):
    value = {
        "held": [Held(np.arange(2), n=(1, Mode.FAST))],
        "pair": Pair(1, Plain(2.5)),
        "params": s.Params({("net", "w"): s.Param(jnp.ones(2))}),
        "set": {1, 2},
        "function": jax.nn.relu,
        "ordered": collections.OrderedDict(a=1),
        "partial": jax.tree_util.Partial(jnp.sin),
    }
    path = s.export(value, tmp_path / "c")
    manifest = path / "manifest.json"
    document = manifest.read_text().replace(f"{__name__}:", "lab.gone:")
    assert "lab.gone:Held" in document
    from neuralqx_struct import bundle

    manifest.write_text(document)
    bundle.seal(path)
    with pytest.raises(s.UntrustedError):
        s.load(path)
    raw = s.load(path, raw=True, as_numpy=True)
    np.testing.assert_array_equal(raw["held"][0].pop("value"), [0, 1])
    np.testing.assert_array_equal(raw["params"]["tree"]["net"]["w"].pop("value"), [1, 1])
    assert raw["held"] == [{"n": [1, "FAST"]}]
    assert raw["pair"] == {"a": 1, "b": {"x": 2.5}}
    assert raw["set"] in ([1, 2], [2, 1]) and raw["function"] == "jax.nn:relu"
    assert raw["ordered"] == {"a": 1} and set(raw["partial"]) == {"children", "aux"}


RAW = [
    ((1, (2, [3])), [1, [2, [3]]]),
    ({"set": {1}, "frozen": frozenset([2])}, {"set": [1], "frozen": [2]}),
    (collections.deque([1], 3), [1]),
    (Pair((1,), Pair(2, 3)), {"a": [1], "b": {"a": 2, "b": 3}}),
    (collections.OrderedDict(a=(1,)), {"a": [1]}),
    (collections.defaultdict(list, a=()), {"a": []}),
    (collections.Counter("aa"), {"a": 2}),
    (types.MappingProxyType({"a": (1,)}), {"a": [1]}),
    ({(1, (2,)): "a", frozenset([3]): "b", Pair(4, 5): "c"},
     {(1, (2,)): "a", (3,): "b", (("a", 4), ("b", 5)): "c"}),
]  # fmt: skip


@every(("value", "wanted"), RAW)
def test_a_raw_load_has_dicts_and_lists(value, wanted):
    payload = s.to_state_dict(value)
    raw = s.from_state_dict(payload, raw=True)
    assert raw == wanted
    assert {type(each) for each in _containers(raw)} <= {dict, list}
    assert s.from_state_dict(payload) == value


def _containers(value):
    if not isinstance(value, (int, str)):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)


def test_a_raw_load_runs_no_hook(tmp_path):
    class Hooked(s.Struct):
        x: int = s.field(converter=lambda v: calls.append(v) or v)

    calls = []
    path = Hooked(3).export(tmp_path / "c")
    calls.clear()
    assert Hooked.load(path, raw=True) == {"x": 3} and calls == []
    shapes = s.load(s.export(state(), tmp_path / "d"), raw=True, abstract=True)
    assert shapes["bias"].shape == (3,) and isinstance(shapes["bias"], jax.ShapeDtypeStruct)


@dataclasses.dataclass(frozen=True)
class Key:
    key: object


def test_a_static_value_that_was_made_unhashable(tmp_path):
    held = Held(1, n=(Key(1),))
    object.__setattr__(held.n[0], "key", [])
    for refuse in (held.rederive, held.to_state_dict, lambda: held.export(tmp_path / "c")):
        with refused(s.StructError, "NQX110", "'n'"):
            refuse()


def test_a_static_value_that_was_set_around_the_freeze(tmp_path):
    held = Held(1, n=1)
    with refused(s.SerializationError, "NQX110"):
        assigned(held, "n", []).export(tmp_path / "c")
    assert Held.load(assigned(held, "n", 2).export(tmp_path / "c")).n == 2


def test_validators_are_run_on_values_that_have_changed(tmp_path):
    class Short(s.Struct):
        items: list = s.field(validator=lambda v: len(v) < 3)

    short = Short([1])
    short.items.extend([2, 3])
    with refused(s.SerializationError, "NQX416") as caught:
        short.export(tmp_path / "c")
    assert [d.path for d in caught.value.diagnostics] == ["$.items"]
    with pytest.raises(s.ValidationError):
        short.rederive()
    del short.items[1:]
    assert Short.load(short.export(tmp_path / "c")) == short


def test_a_value_that_converters_repair_is_saved(tmp_path):
    class Whole(s.Struct):
        n: object = s.field(converter=int, validator=lambda n: type(n) is int)

    changed = jax.tree.map(lambda n: np.float32(n), Whole(3))
    assert Whole.load(changed.export(tmp_path / "c")) == Whole(3)


def test_validators_of_a_field_stop_at_the_first_failure():
    calls = []

    class Rate(s.Struct):
        lr: float = s.field(validator=[lambda v: v > 0, lambda v: calls.append("second") or v < 1])
        n: int = s.field(validator=lambda n: n > 0)

    with pytest.raises(s.ValidationError) as caught:
        Rate(-1.0, 0)
    assert calls == [] and [d.path for d in caught.value.diagnostics] == ["Rate.lr", "Rate.n"]


def test_raw_and_the_manifest_agree(tmp_path):
    path = s.export({"a": [1, None, 2.5, True]}, tmp_path / "c")
    assert s.load(path, raw=True) == s.load(path) == {"a": [1, None, 2.5, True]}
    assert json.loads((path / "manifest.json").read_text())["version"] == 1


class Hooks(s.Struct):
    lr: object = s.field(validator=lambda lr: lr > 0)
    text: object = s.field(converter=lambda text: text.strip())
    n: int = s.field(static=True, derived=lambda self: len(self.text))


@pytest.mark.parametrize("change", [{"lr": None}, {"text": None}, {"lr": "x"}], ids=str)
def test_hooks_that_fail_for_a_stored_value_are_findings(change):
    good = Hooks(lr=1.0, text="ab").to_state_dict()
    good["manifest"]["fields"].update(change)
    with refused(s.SerializationError, "NQX416", "Hooks") as caught:
        s.from_state_dict(good)
    (found,) = caught.value.diagnostics
    (name,) = change
    assert (found.code, found.path) == ("NQX416", "$")
    assert f"ing Hooks.{name}" in found.message
    assert isinstance(caught.value.__cause__, (TypeError, AttributeError))


def test_hooks_that_fail_for_a_changed_value_are_findings():
    nothing = jax.tree.map(lambda leaf: None, Hooks(lr=1.0, text="ab"))
    with refused(s.SerializationError, "NQX416", "Hooks"):
        nothing.to_state_dict()
