"""What was found sound is not looked at again, and nothing else is taken for it."""

import math
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.documents import instance_checks as instances
from neuralqx_struct.documents.instance_checks import InstanceCheck, see_value
from neuralqx_struct.errors import ValidationError
from neuralqx_struct.schema.conformance import conform
from tests.builders import cases, every, refused

TEXT = """\
language: "1"
schema: lab.instances
version: 1
root: Net
dims: {d: {min: 1, max: 9}, e: {equals: width * d}}
enums: {Mode: [slow, fast]}
structs:
  Inner:
    fields: {w: "float32[d]", mode: {type: Mode, default: slow}}
  Net:
    fields:
      width: {type: int, kind: static, default: 1}
      w: {type: array, dtype: float32, shape: [d]}
      v: {type: "float32[e] | null", default: null}
      step: {type: int, default: 0, ge: 0}
      rate: {type: float, default: 0.5, gt: 0, finite: true}
      even: {type: int, default: 2, multiple_of: 2}
      mode: {type: "Mode | null", default: null}
      word: {type: str, default: a, max_length: 4}
      free: {type: str, default: a}
      pick: {type: "literal[1, True]", default: 1}
      low: {type: float, default: 0}
      high: {type: float, default: 1}
      items: {type: "list[int]", default: []}
      table: {type: "dict[str, tuple[int, ...]]", default: {}}
      inner: {type: "Inner | null", default: null}
      layers: {type: "list[Inner]", default: []}
      where: {type: path | null, default: null}
      kind: {type: dtype | null, default: null}
      rest: {type: pytree, default: null}
      handle: {kind: opaque, default: null}
      key: {type: "prng_key[threefry2x32] | null", default: null}
      gap: {type: float, kind: static, derived: high - low}
    constraints: [{expr: gap > 0}]
"""
NET = s.load_schema(TEXT)
Net, Inner = NET.Net, NET.Inner
# Nothing shows this one to be sound without a walk: which of the two is meant?
ODD_TEXT = TEXT.replace(
    "      rest:",
    '      odd: {type: "float32[3] | float32[d, 3] | null", default: null}\n      rest:',
)
ODD = s.load_schema(ODD_TEXT.replace("lab.instances", "lab.odd"))


def inner(d=2, **changes):
    return Inner(w=jnp.zeros(d), **changes)


def loop():
    held = []
    held.append(held)
    return held


EACH = [
    None,
    0,
    1,
    -1,
    True,
    False,
    1.0,
    -0.0,
    math.nan,
    math.inf,
    3 + 0j,
    "a",
    "fast",
    "fastt",
    "x" * 5000,
    b"a",
]
EACH += [
    10**400,
    7,
    12,
    jnp.zeros(2),
    jnp.ones(3),
    jnp.zeros(2, jnp.int32),
    jnp.float32(1),
    np.zeros(2, np.float32),
]
EACH += [
    np.float32(1),
    np.zeros(2),
    np.zeros(2, ">f4"),
    [],
    [1],
    [True],
    ["a"],
    [1] * 300,
    (),
    (1,),
    loop(),
    {},
]
EACH += [
    {"a": (1,)},
    {"a": (1.0,)},
    {1: 2},
    {"a": [1]},
    Path("a"),
    Path("b" * 300),
    np.dtype("int8"),
    object(),
    int,
]
EACH += [
    jax.random.key(0),
    jax.random.key(0, impl="rbg"),
    jax.random.PRNGKey(0),
    jax.ShapeDtypeStruct((2,), jnp.float32),
]
EACH += [
    inner(),
    inner(3),
    inner(mode="fast"),
    [inner(), inner()],
    [inner(3)],
    Inner.__nqx_assemble__({"w": 3, "mode": 4}),
]
USED = {
    name: getattr(Net(w=jnp.zeros(2)), name)
    for name, spec in Net.fields().items()
    if not spec.is_derived
}
STATICS = [value for value in EACH if type(value) in (int, bool, float, str, type(None))]


def fresh(values):
    return Net.__nqx_assemble__(values)


def walked(instance):
    return conform(type(instance).__nqx_document__, "Net", instance, see_value, closed=False)


def alike(inner, net):
    """The same struct of the schema that ``net`` is of."""
    cls = {NET: Inner, ODD: ODD.Inner}[net]
    return cls.__nqx_assemble__({name: getattr(inner, name) for name in ("w", "mode")})


changes = st.dictionaries(st.sampled_from(sorted(USED)), st.integers(0, 1000), max_size=3).map(
    lambda drawn: {
        name: (STATICS if name == "width" else EACH)[i % len(STATICS if name == "width" else EACH)]
        for name, i in drawn.items()
    }
)


@settings(max_examples=cases(400), deadline=None)
@given(changes)
def test_the_verdict_is_that_of_the_walk(drawn):
    for cls, more in ((Net, {}), (ODD.Net, {"odd": None})):
        instance = cls.__nqx_assemble__(USED | more | drawn)
        assert cls.__nqx_check__(instance) == walked(instance)
        assert cls.__nqx_check__(instance) == walked(instance)  # what was sound is known by now


@every("name", sorted(USED))
def test_every_value_in_every_field_has_the_verdict_of_the_walk(name):
    for value in STATICS if name == "width" else EACH:
        instance = fresh(USED | {name: value})
        assert Net.__nqx_check__(instance) == walked(instance), value


@pytest.fixture
def walks(monkeypatch):
    """How often the schema has been walked."""
    counted = []

    def counting(*arguments, **options):
        counted.append(arguments[1])
        return conform(*arguments, **options)

    monkeypatch.setattr(instances, "conform", counting)
    return counted


def test_equal_signatures_are_walked_once(walks):
    net = ODD.Net(w=jnp.zeros(2), inner=alike(inner(), ODD), items=[1], free="one", where=Path("a"))
    walks.clear()
    for step in range(20):
        net = net.replace(
            step=step,
            w=net.w + 1,
            rate=0.5,
            free=f"free {step}",
            items=[step],
            where=Path(f"a{step}"),
        )
        net = net.replace(
            inner=net.inner.replace(w=net.inner.w + 1), rest={"a": object()}, handle=object()
        )
    assert len(walks) <= 8  # and not 40: what the schema says nothing about does not count
    walks.clear()
    net.replace(high=2.0)
    net.replace(high=2.0)
    assert walks == ["Net"]  # a constraint asks for it, so its value counts


def test_the_usual_is_walked_once(walks):
    net = Net(w=jnp.zeros(2), inner=inner(), items=[1], free="one", where=Path("a"))
    for step in range(9):
        net = net.replace(
            step=step,
            w=net.w + 1,
            rate=0.5,
            items=[step],
            v=jnp.zeros(2),
            mode="fast",
        )
        net = net.replace(
            layers=[*net.layers, inner()],
            inner=net.inner.replace(w=net.inner.w + 1),
            handle=object(),
        )
        net = net.replace(
            rest={"a": object()},
            key=jax.random.key(0),
            table={f"a{step}": (step,)},
            width=1,
            pick=True,
        )
        if step == 0:
            walks.clear()
    assert len(walks) <= 8  # a list of another length is another signature


def test_containers_that_changed_meanwhile_are_looked_at_again():
    net = Net(w=jnp.zeros(2), items=[1], table={"a": (1,)}, layers=[inner()])
    net.items.append("two")
    with refused(ValidationError, "NQX411", "$.items[1]"):
        net.replace(step=1)
    net.items.pop()
    net.layers.append(inner(3))
    with refused(ValidationError, "NQX413", "$.layers[1].w", "d = 2"):
        net.replace(step=1)
    net.layers.pop()
    assert net.replace(step=1).step == 1


def test_what_jax_put_into_structs_inside_is_looked_at():
    net = Net(w=jnp.zeros(2), inner=inner())
    other = jax.tree.map(lambda x: x.astype(jnp.int32) if isinstance(x, jax.Array) else x, net)
    with refused(ValidationError, "NQX411", "$.inner.w", "float32"):
        net.replace(inner=other.inner)


@pytest.mark.parametrize("schema", [NET, ODD])
def test_tracers_have_signatures_of_their_own(schema, walks):
    net = schema.Net(w=jnp.zeros(2))

    @jax.jit
    def grown(w, bad):
        mine = net
        for _ in range(3):
            mine = mine.replace(w=mine.w * w)
        with refused(ValidationError, "NQX411", "$.w", "float32"):
            mine.replace(w=bad)
        return mine.w

    walks.clear()
    assert grown(jnp.ones(2), jnp.zeros(3, jnp.int32)).shape == (2,)
    assert len(walks) <= 4
    with refused(ValidationError, "NQX413", "$.inner.w", "d = 2"):
        jax.jit(lambda w: net.replace(w=w, inner=alike(inner(3), schema)).w)(jnp.ones(2))


def test_constraints_on_tracers_are_remembered(walks):
    net = ODD.Net(w=jnp.zeros(2))

    @jax.jit
    def grown(high):
        mine = net
        for _ in range(9):
            mine = mine.replace(high=high + 1)
        return mine.high

    walks.clear()
    assert grown(jnp.float32(3)) == 4
    assert len(walks) <= 2


def test_numbers_inside_arrays_are_looked_at_every_time(walks):
    text = ODD_TEXT.replace("lab.instances", "lab.data").replace(
        "expr: gap > 0", "expr: all(isfinite(w)) and size(w) > 1"
    )
    data = s.load_schema(text)
    net = data.Net(w=jnp.zeros(2))
    for _ in range(2):
        with refused(ValidationError, "NQX416", "isfinite", "size(w)"):
            net.replace(w=jnp.array([0.0, jnp.nan]))
        assert net.replace(w=jnp.ones(2)).w.tolist() == [1, 1]
    assert len(walks) >= 8
    shapes = s.load_schema(
        text.replace("lab.data", "lab.shapes").replace("all(isfinite(w)) and ", "")
    )
    net = shapes.Net(w=jnp.zeros(2))
    walks.clear()
    assert net.replace(w=jnp.ones(2)).replace(w=jnp.zeros(2)).w.tolist() == [0, 0]
    assert walks == []  # sizes are no data


def test_what_is_remembered_is_bounded():
    check = InstanceCheck(ODD.document, "Net")
    for high in range(1, 1000):
        assert check(ODD.Net.__nqx_assemble__(USED | {"odd": None, "high": float(high)})) == []
    assert 0 < len(check._marks) <= 128
    long, wide = (
        ODD.Net.__nqx_assemble__(USED | {"odd": None} | more)
        for more in ({"low": -(10**400)}, {"items": [1] * 5000})
    )
    before = len(check._marks)
    assert check(long) == check(wide) == []
    assert len(check._marks) == before


def test_drafts_of_one_version_do_not_trust_each_other():
    draft = s.load_schema(
        TEXT.replace("mode: {type: Mode, default: slow}", "mode: {type: str, default: slow}")
    )
    for mode in ("slow", "slower"):
        instance = fresh(USED | {"inner": draft.Inner(w=jnp.zeros(2), mode=mode)})
        assert Net.__nqx_check__(instance) == walked(instance)
        assert bool(walked(instance)) == (mode == "slower")


def test_subclasses_and_structs_of_others():
    class Mine(Inner):
        more: int = 0

    class Other(s.Struct):
        w: jax.Array

    for value in (Mine(w=jnp.zeros(2)), Mine(w=jnp.zeros(2), mode="fast"), Other(w=jnp.zeros(2))):
        instance = fresh(USED | {"inner": value})
        assert Net.__nqx_check__(instance) == walked(instance)


def test_a_condition_on_each_element_says_so():
    (found,) = walked(fresh(USED | {"high": jnp.ones(2)}))[1:]
    assert found.message.endswith("gap > 0 has a result for each element; write all(gap > 0)")


def test_threads_agree():
    wrong = []

    def work(seed):
        for i in range(150):
            d = 1 + (seed + i) % 3
            instance = fresh(
                USED | {"w": jnp.zeros(d), "inner": inner(1 + i % 2), "high": float(1 + i % 7)}
            )
            if bool(Net.__nqx_check__(instance)) != (d != 1 + i % 2):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


FLAT = s.load_schema("""\
language: "1"
schema: lab.flat
version: 1
root: Flat
dims: {e: {equals: width * d}, d: {}}
structs:
  Flat:
    fields:
      handle: {type: str | null, kind: opaque, default: null}
      width: {type: int, kind: static, default: 1}
      w: float32[d]
      v: {type: "float32[e] | null", default: null}
      step: {type: int, default: 0, ge: 0}
      items: {type: "list[int]", default: []}
""").Flat
FLAT_USED = {"handle": None, "width": 1, "w": jnp.zeros(2), "v": None, "step": 0, "items": []}


@pytest.mark.parametrize("name", FLAT_USED)
def test_construction_and_replace_say_the_same_as_the_walk(name):
    sound = FLAT(**FLAT_USED)
    assert sound == FLAT(w=FLAT_USED["w"]) == sound.replace(step=1).replace(step=0)
    for value in STATICS if name == "width" else EACH:
        values = FLAT_USED | {name: value}
        wanted = bool(FLAT.__nqx_check__(FLAT.__nqx_assemble__(values)))
        for make in (
            lambda values=values: FLAT(**values),
            lambda value=value: sound.replace(**{name: value}),
        ):
            for _ in range(2):
                if wanted:
                    with pytest.raises(ValidationError):
                        make()
                else:
                    assert getattr(make(), name) is value or name == "width"
    with refused(TypeError, "wdth", "width"):
        sound.replace(wdth=1)


def test_reset_fields_and_subclasses_are_checked_whole():
    text = 'language: "1"\nschema: lab.reset\nversion: 1\nroot: R\nstructs:\n  R:\n    fields:\n'
    text += "      log: {type: str, kind: opaque, reset: true, default: a}\n      x: {type: int, default: 0, ge: 0}\n"
    cls = s.load_schema(text).R

    class Mine(cls):
        more: int = 0

    for made in (cls, Mine):
        assert made(log="b").replace(x=1).replace(x=2).x == 2
        for wrong in ({"log": 3}, {"x": -1}):
            with pytest.raises(ValidationError):
                made(**wrong)
            with pytest.raises(ValidationError):
                made().replace(**wrong)
    assert Mine().replace(more=2).more == 2


COMPARED = """
language: "1"
schema: lab.deep
version: 1
root: Net
structs:
  Layer: {fields: {w: "float32[n]"}}
  Net:
    fields:
      n_layers: {type: int, kind: static}
      layers: list[Layer]
      x: "float32[k]"
      sizes: {type: "list[int]", default: []}
      rates: {type: "dict[str, float]", default: {}}
    constraints:
      - {expr: len(layers) == n_layers, message: one layer for each}
      - {expr: sum(x) <= max(x)}
      - {expr: "shape(x) == (2,)"}
      - {expr: all(x < 9)}
      - {expr: all(sizes > 0)}
      - {expr: sum(rates) < 1}
"""


def test_what_a_condition_compared_is_told():
    net = s.load_schema(COMPARED)
    layers = [net.Layer(w=jnp.ones(2)), net.Layer(w=jnp.ones(3))]
    good = net.Net(n_layers=2, layers=layers, x=jnp.array([1.0, -1.0]))
    with pytest.raises(ValidationError) as caught:
        net.Net(n_layers=3, layers=layers, x=jnp.array([1.0, 2.0, 9.0]))
    assert str(caught.value).splitlines() == [
        "$: expected len(layers) == n_layers, got len(layers) = 2, n_layers = 3 [NQX416]",
        "  one layer for each",
        "$: expected sum(x) <= max(x), got max(x) = 9.0, sum(x) = 12.0 [NQX416]",
        "$: expected shape(x) == (2,), got shape(x) = (3,) [NQX416]",
        "$: expected all(x < 9), got a value that fails it [NQX416]",
    ]
    with pytest.raises(ValidationError) as caught:
        good.replace(sizes=[*range(9)], rates={"a": 0.5, "b": 1.0})
    assert str(caught.value).splitlines() == [
        "$: expected all(sizes > 0), got sizes = (0, 1, 2, 3, 4, 5, 6, 7, ...) [NQX416]",
        "$: expected sum(rates) < 1, got rates = (0.5, 1.0), sum(rates) = 1.5 [NQX416]",
    ]
    # Numbers wait for values while JAX traces; what is counted does not.
    with refused(ValidationError, "NQX416", "len(layers) = 1", "n_layers = 2"):
        jax.jit(lambda net: net.replace(layers=net.layers[:1], x=net.x * 9))(good)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"table": {1: ()}}, ["$.table", "dict[str, tuple[int, ...]]"]),
        ({"layers": [3]}, ["$.layers[0]", "lab.instances@1:Inner", 3]),
    ],
)
def test_what_is_something_else_is_called_by_its_name(value, named):
    with refused(ValidationError, "NQX411", *named):
        Net(
            **{"w": jnp.zeros(2), "inner": inner(), "items": [1], "free": "one", "where": Path("a")}
            | value
        )


def test_a_subclass_that_comes_first_does_not_spoil_the_memo(walks):
    made = s.load_schema(TEXT.replace("lab.instances", "lab.first"))

    class More(made.Inner):
        extra: float = 0.0

    assert More(w=jnp.zeros(2)).replace(extra=1.0).extra == 1.0
    walks.clear()
    plain = made.Inner(w=jnp.zeros(3))
    for step in range(9):
        plain = plain.replace(w=plain.w + step)
    assert walks == ["Inner"]
