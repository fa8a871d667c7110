"""Layouts are invertible: over random schemas, rules and values, reading undoes writing and writing undoes reading."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralqx_struct as s

SIZES = {"a": 2, "b": 3, "c": 4, "d": 1}
DTYPES = st.sampled_from(["float32", "int8", "bfloat16", "complex64", "bool"])
SHAPES = st.lists(st.sampled_from([*SIZES, "2", "a + b"]), max_size=3)


def size(text):
    return eval(text, {"__builtins__": {}}, SIZES)


@st.composite
def single(draw, name):
    """One field with a rule of its own."""
    shape, dtype = draw(SHAPES), draw(DTYPES)
    rule = {"name": draw(st.sampled_from([f"x.{name}", f"/top.{name}", name]))}
    inner = shape
    if shape and draw(st.booleans()):
        order = draw(st.permutations(range(len(shape))))
        rule["transpose"] = list(order)
        inner = [shape[order.index(axis)] for axis in range(len(order))]
    if draw(st.booleans()):
        rule["reshape"] = draw(reshaped(inner))
        if rule["reshape"] == inner:
            del rule["reshape"]
    whole = rule.get("reshape", inner)
    if whole and draw(st.booleans()):
        rule |= draw(merged(name, whole))
    if dtype == "bfloat16" and draw(st.booleans()):
        dtype, rule["cast"] = "float32", "bfloat16"
    return {name: (dtype, shape, rule)}


@st.composite
def reshaped(draw, shape):
    """A shape with as many elements, from neighbours that become one axis, and new ones of length 1."""
    if not shape:
        return ["1"]
    cut = draw(st.integers(0, len(shape) - 1))
    joined = " * ".join(f"({each})" for each in shape[cut:])
    return [*shape[:cut], joined] if cut < len(shape) - 1 else [*shape, "1"]


@st.composite
def merged(draw, name, whole):
    """The members of a rule that merges arrays of the file."""
    axis = draw(st.integers(0, len(whole) - 1))
    length = size(whole[axis])
    if draw(st.booleans()):
        return {"name": [f"{name}.{i}" for i in range(length)], "merge": "stack", "axis": axis}
    first = draw(st.integers(0, length))
    sizes = {"sizes": [first, length - first]}
    return {"name": [f"{name}.l", f"{name}.r"], "axis": axis, **sizes}


@st.composite
def shared(draw, name):
    """Several fields that are parts of one array."""
    shape, dtype = draw(st.lists(st.sampled_from([*SIZES]), min_size=1, max_size=3)), draw(DTYPES)
    axis = draw(st.integers(0, len(shape) - 1))
    count = draw(st.integers(2, 3))
    how = draw(st.sampled_from(["equal", "stack", "sizes", "blocks"]))
    found = {}
    for k in range(count):
        rule = {"name": f"fused.{name}", "part": [k, count], "axis": axis}
        own = list(shape)
        if how == "stack":
            rule["split"] = "stack"
        if how in ("sizes", "blocks"):
            lengths = list(range(1, count + 1))
            blocks = 2 if how == "blocks" else 1
            own[axis] = str(blocks * lengths[k])
            rule |= {"part": k, "sizes": lengths}
            rule |= {"blocks": 2} if blocks == 2 else {}
        found[f"{name}{k}"] = (dtype, own, rule)
    return found


FIELDS = st.tuples(single("p"), single("q"), shared("f")).map(
    lambda each: each[0] | each[1] | each[2]
)
HOLDERS = {
    "one": ("Inner", {"name": "one"}),
    "none": ("Inner | null", {"name": "none"}),
    "numbered": ("list[Inner]", {"name": "h.{i}"}),
    "unstacked": ("list[Inner]", {"name": "u", "unstack": 0}),
    "last": ("list[Inner]", {"name": "v", "unstack": -1}),
    "keyed": ("dict[str, Inner]", {"name": "k.{key}"}),
    "apart": ("Inner[][m]", {"name": "s.{i}"}),
    "scanned": ("Inner[][m]", {"name": "t", "stack": -1}),
    "nested": ("list[dict[str, Inner]]", {"name": "n.{i}.{key}"}),
    "twice": ("list[list[Inner]]", {"name": "w.{i}.x.{i}"}),
}


@st.composite
def models(draw):
    fields, holder = draw(FIELDS), draw(st.sampled_from([*HOLDERS]))
    declared, rule = HOLDERS[holder]
    anew = any(
        isinstance(r["name"], str) and r["name"].startswith("/") for _, _, r in fields.values()
    )
    if (
        anew and holder != "one"
    ):  # such a name is that of one array, so one instance alone can have it
        for _, _, each in fields.values():
            if isinstance(each["name"], str):
                each["name"] = each["name"].removeprefix("/")
    struct = {name: f"{dtype}[{', '.join(shape)}]" for name, (dtype, shape, _) in fields.items()}
    schema = {
        "language": "1",
        "schema": "lab.law",
        "version": 1,
        "root": "Net",
        "dims": {name: {"equals": str(number)} for name, number in SIZES.items()},
        "structs": {"Inner": {"fields": struct}, "Net": {"fields": {"held": declared}}},
    }
    rules = {"Inner": {name: rule for name, (_, _, rule) in fields.items()}, "Net": {"held": rule}}
    prefix = draw(st.sampled_from([[""], ["model."], ["", "model."]]))
    layout = {"language": "1", "layout": "x", "of": "lab.law@1", "prefix": prefix, "structs": rules}
    layout["separator"] = draw(st.sampled_from([".", "/"]))
    seed = draw(st.integers(0, 2**16))
    return (
        schema,
        layout,
        holder,
        {n: (d, [*map(size, sh)]) for n, (d, sh, _) in fields.items()},
        seed,
    )


def instance(holder, arrays, seed):
    """The data of a Net."""
    rng = np.random.default_rng(seed)

    def inner(*lead):
        return {
            name: rng.integers(0, 2, (*lead, *shape)).astype(dtype)
            for name, (dtype, shape) in arrays.items()
        }

    made = {
        "one": inner,
        "none": lambda: None,
        "keyed": lambda: {"y": inner(), "x": inner()},
        "apart": lambda: inner(2),
        "scanned": lambda: inner(3),
        "nested": lambda: [{"x": inner()}, {"y": inner(), "z": inner()}],
        "twice": lambda: [[inner(), inner()], [inner()]],
    }
    return {"held": made.get(holder, lambda: [inner(), inner(), inner()])()}


@settings(max_examples=25, deadline=None)
@given(models())
def test_reading_undoes_writing_and_writing_undoes_reading(model):
    schema, layout, holder, arrays, seed = model
    from neuralqx_struct.classes.schemas import load_schema
    from neuralqx_struct.schema.text.loader import dump_yaml

    net = load_schema(dump_yaml(schema))
    value = s.from_dict(instance(holder, arrays, seed), net)
    written = net.to_layout(value, layout)
    again = net.from_layout(written, layout, as_numpy=True)
    assert again == value
    names = [*written][::-1]
    back = net.to_layout(again, layout, like={name: written[name] for name in names})
    assert [*back] == names
    for name, array in written.items():
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()
    held = sum(leaf.nbytes for leaf in net.to_layout(again, layout).values())
    assert held == sum(array.nbytes for array in written.values())
