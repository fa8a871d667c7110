"""Steps reach stacked structs: each layer becomes what a single instance of the struct becomes."""

import numpy as np

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as s
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps import stages_of
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.schema.sizes.comparison import shown_sizes
from tests.builders import WORDS, doc, every, payload, refused, same, up, value

F4 = np.arange(6, dtype="float32").reshape(2, 3)
C8 = F4 + 1j * F4[::-1]

#: The step; the fields of the struct before and after it, and their values in one layer.
CASES = {
    "cast": (
        s.cast(field="x", dtype="float64", within="L"),
        {"x": "float32[a, b]"},
        {"x": "float64[a, b]"},
        {"x": F4},
    ),
    "inexact cast": (
        s.cast(field="x", dtype="int8", within="L", exact=False, lossy=True),
        {"x": "float32[a, b]"},
        {"x": "int8[a, b]"},
        {"x": F4 + np.float32(0.5)},
    ),
    "transpose": (
        s.transpose(field="x", within="L"),
        {"x": "float32[a, b]"},
        {"x": "float32[b, a]"},
        {"x": F4},
    ),
    "transpose by negative axes": (
        s.transpose(field="x", axes=[-1, 0], within="L"),
        {"x": "float32[a, b]"},
        {"x": "float32[b, a]"},
        {"x": F4},
    ),
    "reshape": (
        s.reshape(field="x", shape=["a * b"], within="L"),
        {"x": "float32[a, b]"},
        {"x": "float32[a * b]"},
        {"x": F4},
    ),
    "arrays in lists": (
        s.transpose(field="x", within="L"),
        {"x": "list[float32[a, b], 2]"},
        {"x": "list[float32[b, a], 2]"},
        {"x": [F4, 2 * F4]},
    ),
    "split": (
        s.split(field="x", axis=1, into={"p": 1, "q": "c"}, within="L"),
        {"x": "float32[a, 1 + c]", "y": "float32[c]"},
        {"p": "float32[a, 1]", "q": "float32[a, c]", "y": "float32[c]"},
        {"x": F4, "y": F4[0, :2]},
    ),
    "split a stack": (
        s.split(field="x", axis=-1, into=["p", "q", "r"], how="stack", within="L"),
        {"x": "float32[a, 3]"},
        {"p": "float32[a]", "q": "float32[a]", "r": "float32[a]"},
        {"x": F4},
    ),
    "split complex": (
        s.split(field="x", into=["p", "q"], how="complex", within="L"),
        {"x": "complex64[a, b]"},
        {"p": "float32[a, b]", "q": "float32[a, b]"},
        {"x": C8.astype("complex64")},
    ),
    "merge": (
        s.merge(fields=["p", "q"], into="x", axis=-1, how="concat", within="L"),
        {"p": "float32[a, b]", "q": "float32[a, 2]"},
        {"x": "float32[a, b + 2]"},
        {"p": F4, "q": F4[:, :2]},
    ),
    "merge to a stack": (
        s.merge(fields=["p", "q"], into="x", axis=0, how="stack", within="L"),
        {"p": "float32[a, b]", "q": "float32[a, b]"},
        {"x": "float32[2, a, b]"},
        {"p": F4, "q": 2 * F4},
    ),
    "merge to complex": (
        s.merge(fields=["p", "q"], into="x", how="complex", within="L"),
        {"p": "float32[a]", "q": "float32[a]"},
        {"x": "complex64[a]"},
        {"p": F4[0], "q": F4[1]},
    ),
    "rename": (
        s.rename(field="x", to="y", within="L"),
        {"x": "float32[a]"},
        {"y": "float32[a]"},
        {"x": F4[0]},
    ),
    "add": (
        s.add(field="y", default=1, within="L"),
        {"x": "float32[a]"},
        {"x": "float32[a]", "y": "int8[2 * a]"},
        {"x": F4[0]},
    ),
    "add numbers": (
        s.add(field="y", default=[1, 2], within="L"),
        {"x": "float32[a]"},
        {"x": "float32[a]", "y": "int8[2]"},
        {"x": F4[0]},
    ),
    "fill": (
        s.fill(field="y", value=3, within="L"),
        {"x": "float32[a]", "y": "int8[a] | null"},
        {"x": "float32[a]", "y": "int8[a]"},
        {"x": F4[0], "y": None},
    ),
    "remove": (
        s.remove(field="y", undo_default=0, within="L"),
        {"x": "float32[a]", "y": "int8[a]"},
        {"x": "float32[a]"},
        {"x": F4[0], "y": np.zeros(3, "int8")},
    ),
    "wrap_key": (
        s.wrap_key(field="x", impl="threefry2x32", within="L"),
        {"x": "uint32[2]"},
        {"x": "prng_key[threefry2x32]"},
        {"x": WORDS},
    ),
    "move": (
        s.move(fields=["x"], into="inner", struct="I", within="L"),
        {"x": "float32[a]", "y": "float32[a]"},
        {"y": "float32[a]", "inner": "I"},
        {"x": F4[0], "y": F4[1]},
    ),
}


def versions(before, after, steps=None):
    outer = {"one": "L", "all": "L[][n]", "deep": "D[][m]", "w": "float32[n]"}
    structs = {"D": {"inner": "L[][k]", "v": "float32[k]"}}
    more = {"I": {"x": "float32[c]"}} if "I" in after.values() else {}
    old = doc(outer, structs={"L": before, **structs})
    return old, doc(outer, 2, steps, structs={"L": after, **structs, **more})


def stacked(values, count):
    """The values of so many layers; the first ones are `values`."""

    def grown(held):
        if isinstance(held, list):
            return [*map(grown, held)]
        if not isinstance(held, np.ndarray):
            return held
        return np.stack([held + held.dtype.type(i) for i in range(count)])

    return {name: grown(held) for name, held in values.items()}


def numbers(held):
    """Constant arrays and words of keys as arrays."""
    if isinstance(held, dict) and held.get("__kind__") == "full":
        return np.full(held["shape"], held["value"], held["dtype"])
    if isinstance(held, tuple):
        return numbers(held[1])
    if isinstance(held, dict):
        return {name: numbers(inner) for name, inner in held.items()}
    return [*map(numbers, held)] if isinstance(held, list) else held


def layer(held, *index):
    if isinstance(held, dict):
        return {name: layer(inner, *index) for name, inner in held.items()}
    if isinstance(held, list):
        return [layer(inner, *index) for inner in held]
    return held[index].copy() if isinstance(held, np.ndarray) else held


@every("case", CASES.values())
def test_each_layer_becomes_what_a_single_instance_becomes(case):
    step, before, after, values = case
    old, new = versions(before, after, [step])
    assert [d for d in prove(old, new) if d.severity == "error"] == []
    layers = stacked(values, 3)
    deep = stacked(layers, 2)
    state = {
        "one": ("L", values),
        "all": ("L", layers),
        "deep": ("D", {"inner": ("L", deep), "v": np.zeros((2, 3), "float32")}),
        "w": np.zeros(3, "float32"),
    }
    held = up(old, new, state)
    made = numbers(value(held.document["manifest"], held.arrays))
    assert same(layer(made["all"], 0), made["one"])
    assert same(layer(made["deep"]["inner"], 0), made["all"])
    for index in range(3):  # as single instances
        single = {**state, "one": ("L", layer(layers, index))}
        alone = up(old, new, single)
        alone = numbers(value(alone.document["manifest"], alone.arrays))
        assert same(layer(made["all"], index), alone["one"])
    lossy = any(d.code == "NQX307" for d in prove(old, new))
    if lossy or step.name in ("fill", "cast", "remove"):
        return
    back = apply(held, plan(series_of([old, new]), 2, 1))
    former = numbers(value(back.document["manifest"], back.arrays))
    start = payload(old, state)
    assert same(former, numbers(value(start.document["manifest"], start.arrays)))


def test_no_layer_at_all():
    step, before, after, values = CASES["split a stack"]
    old, new = versions(before, after, [step])
    none = {name: held[:0] for name, held in stacked(values, 1).items()}
    state = {"one": ("L", values), "all": ("L", none), "w": np.zeros(0, "float32")}
    state["deep"] = ("D", {"inner": ("L", stacked(none, 2)), "v": np.zeros((2, 0), "float32")})
    held = up(old, new, state)
    assert held.arrays["all/p"].shape == (0, 2)
    assert held.arrays["deep/inner/p"].shape == (2, 0, 2)


def test_steps_that_cannot_reach_layers_are_refused():
    fields = {"x": "float32[a]", "y": "float32[a]"}
    python = s.python(function="half", reads=["x"], writes=["x"], lossy=True, within="L")
    old, new = versions(fields, fields, [python])
    with refused(SchemaError, "NQX304", "L"):
        stages_of(old, [python], new)
    convert = s.convert(field="x", to="list[float]", within="L")
    with refused(SchemaError, "NQX304", "$.migrations[0].steps[0].convert.field", "L"):
        stages_of(old, [convert], new)


def test_a_stacked_struct_shows_its_axis():
    old, _ = versions({"x": "float32[a]"}, {})
    assert shown_sizes(old, "A") >= {"n", "m"}
    bare = doc({"all": "L[][n]"}, structs={"L": {"x": "float32[a] | null"}})
    assert shown_sizes(bare, "A") == set()  # lint refuses it; a step may lead there
