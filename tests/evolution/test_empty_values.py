"""The law of steps on empty values: sizes of 0 and 1, empty lists and dicts, null, and no instance at all.

Each step is compared with a model in numpy, up and down, in every kind of place that an instance may have. What the payload
leaves open stops with a message whose advice is followed here, too.
"""

from dataclasses import dataclass

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import MigrationError, has_errors
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps.python import function
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from tests.builders import conforms, doc, every, same, up, value


def numbers(*shape, dtype="f4"):
    """An array of different numbers."""
    return np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


@function("test.empty.flip")
def flip(values):
    return {name: np.ascontiguousarray(array[::-1]) for name, array in values.items()}


@dataclass
class Key:
    """Random keys, of which `value` shows the implementation and the words."""

    words: np.ndarray


KEY = "prng_key[threefry2x32, n]"
#: By name: the fields before and after, the step, the values, and those after it, of the sizes n and m.
STEPS = {
    "rename": ({"a": "float32[n, m]"}, {"b": "float32[n, m]"}, build.rename(field="a", to="b"),
        lambda a: {"a": a}, lambda a: {"b": a}),
    "add": ({}, {"a": "bool[n, 2 * m]"}, build.add(field="a", default=True),
        lambda _: {}, lambda a: {"a": np.ones((a.shape[0], 2 * a.shape[1]), bool)}),
    "add the identity": ({}, {"a": "float32[n, n]"}, build.add(field="a", default={"eye": "n"}),
        lambda _: {}, lambda a: {"a": np.eye(len(a), dtype="f4")}),
    "add a copy": ({"a": "float32[n, m]"}, {"a": "float32[n, m]", "b": "float32[n, m]"}, build.add(field="b", copy_of="a"),
        lambda a: {"a": a}, lambda a: {"a": a, "b": a}),
    "add like": ({"a": "float32[n, m]"}, {"a": "float32[n, m]", "b": "float32[n, m]"}, build.add(field="b", like="a", default=2),
        lambda a: {"a": a}, lambda a: {"a": a, "b": np.full_like(a, 2)}),
    "remove a copy": ({"a": "float32[n]", "b": "float32[n]"}, {"a": "float32[n]"}, build.remove(field="b", undo_copy="a"),
        lambda a: {"a": a[:, 0] if a.size else np.zeros(len(a), "f4"), "b": a[:, 0] if a.size else np.zeros(len(a), "f4")},
        lambda a: {"a": a[:, 0] if a.size else np.zeros(len(a), "f4")}),
    "remove": ({"a": "float32[n, m]"}, {}, build.remove(field="a", undo_default=1),
        lambda a: {"a": np.ones_like(a)}, lambda _: {}),
    "cast": ({"a": "float32[n, m]"}, {"a": "int8[n, m]"}, build.cast(field="a", dtype="int8"),
        lambda a: {"a": a}, lambda a: {"a": a.astype("i1")}),
    "transpose": ({"a": "float32[n, m]"}, {"a": "float32[m, n]"}, build.transpose(field="a"),
        lambda a: {"a": a}, lambda a: {"a": np.ascontiguousarray(a.T)}),
    "reshape": ({"a": "float32[n, m]"}, {"a": "float32[m * n]"}, build.reshape(field="a", shape=["m * n"]),
        lambda a: {"a": a}, lambda a: {"a": a.reshape(-1)}),
    "split": ({"a": "float32[n + m]"}, {"b": "float32[n]", "c": "float32[m]"}, build.split(field="a", into={"b": "n", "c": "m"}),
        lambda a: {"a": numbers(sum(a.shape))}, lambda a: {"b": numbers(sum(a.shape))[: len(a)], "c": numbers(sum(a.shape))[len(a) :]}),
    "split an axis of two": ({"a": "float32[n, 2, m]"}, {"b": "float32[n, m]", "c": "float32[n, m]"}, build.split(field="a", into=["b", "c"], how="stack", axis=1),
        lambda a: {"a": np.stack([a, -a], 1)}, lambda a: {"b": a, "c": -a}),
    "split complex": ({"a": "complex64[n, m]"}, {"b": "float32[n, m]", "c": "float32[n, m]"}, build.split(field="a", into=["b", "c"], how="complex"),
        lambda a: {"a": a + 1j * a}, lambda a: {"b": a, "c": a}),
    "merge": ({"a": "float32[n, m]", "b": "float32[2, m]"}, {"c": "float32[n + 2, m]"}, build.merge(fields=["a", "b"], into="c", how="concat"),
        lambda a: {"a": a, "b": numbers(2, a.shape[1])}, lambda a: {"c": np.concatenate([a, numbers(2, a.shape[1])])}),
    "merge three behind": ({"a": "float32[n, m]", "b": "float32[n, 0]", "c": "float32[n, 1]"}, {"d": "float32[n, m + 1]"},
        build.merge(fields=["a", "b", "c"], into="d", how="concat", axis=-1),
        lambda a: {"a": a, "b": numbers(len(a), 0), "c": numbers(len(a), 1)}, lambda a: {"d": np.concatenate([a, numbers(len(a), 1)], 1)}),
    "merge stack": ({"a": "float32[n, m]", "b": "float32[n, m]"}, {"c": "float32[n, 2, m]"}, build.merge(fields=["a", "b"], into="c", how="stack", axis=1),
        lambda a: {"a": a, "b": -a}, lambda a: {"c": np.stack([a, -a], 1)}),
    "merge complex": ({"a": "float32[n, m]", "b": "float32[n, m]"}, {"c": "complex64[n, m]"}, build.merge(fields=["a", "b"], into="c", how="complex"),
        lambda a: {"a": a, "b": a}, lambda a: {"c": a + 1j * a}),
    "merge a list": ({"a": "float32[n]", "b": "float32[n]"}, {"c": "list[float32[n], 2]"}, build.merge(fields=["a", "b"], into="c", how="list"),
        lambda a: {"a": numbers(len(a)), "b": numbers(len(a))}, lambda a: {"c": [numbers(len(a))] * 2}),
    "stack": ({"a": "list[float32[m], n]"}, {"a": "float32[n, m]"}, build.stack(field="a"),
        lambda a: {"a": [*a]}, lambda a: {"a": a}),
    "unstack": ({"a": "float32[n, m]"}, {"a": "list[float32[m], n]"}, build.unstack(field="a"),
        lambda a: {"a": a}, lambda a: {"a": [*a]}),
    "stack structs": ({"a": "list[In[m], n]"}, {"a": "In[m][n]"}, build.stack(field="a"),
        lambda a: {"a": [("In", {"w": row, "l": [row], "k": ("In2", {"v": row[:, None]})}) for row in a]},
        lambda a: {"a": ("In", {"w": a, "l": [a], "k": ("In2", {"v": a[:, :, None]})})}),
    "convert": ({"a": "list[float]"}, {"a": "float32[n]"}, build.convert(field="a", to="float32[n]"),
        lambda a: {"a": numbers(len(a)).tolist()}, lambda a: {"a": numbers(len(a))}),
    "convert to a list": ({"a": "float32[m]"}, {"a": "list[int]"}, build.convert(field="a", to="list[int]"),
        lambda a: {"a": numbers(a.shape[1])}, lambda a: {"a": [*range(1, 1 + a.shape[1])]}),
    "wrap_key": ({"a": "uint32[n, 2]"}, {"a": KEY}, build.wrap_key(field="a", impl="threefry2x32"),
        lambda a: {"a": numbers(len(a), 2, dtype="u4")}, lambda a: {"a": Key(numbers(len(a), 2, dtype="u4"))}),
    "python": ({"a": "float32[n, m]"}, {"a": "float32[n, m]"},
        build.python(function="test.empty.flip", inverse="test.empty.flip", reads=["a"], writes=["a"]),
        lambda a: {"a": a}, lambda a: {"a": np.ascontiguousarray(a[::-1])}),
    "move": ({"a": "float32[n, m]"}, {"c": "New[n, m]"}, build.move(fields=["a"], into="c", struct="New"),
        lambda a: {"a": a}, lambda a: {"c": ("New", {"a": a})}),
    "inline": ({"c": "New[n, m]"}, {"a": "float32[n, m]"}, build.inline(field="c", fields=["a"]),
        lambda a: {"c": ("New", {"a": a})}, lambda a: {"a": a}),
    "fill": ({"a": "float32[n, m] | null"}, {"a": "float32[n, m]"}, build.fill(field="a", value=1),
        lambda a: {"a": a}, lambda a: {"a": a}),
    "rename_path": ({"a": "dict[str, float32[n, m]]"}, {"a": "dict[str, float32[n, m]]"}, build.rename_path(field="a", path="x", to="y"),
        lambda a: {"a": {"x": a}}, lambda a: {"a": {"y": a}}),
}  # fmt: skip
INSIDE = {
    "In": {
        "params": ["p"],
        "fields": {"w": "float32[p]", "l": "list[float32[p], 1]", "k": "In2[p]"},
    },
    "In2": {"params": ["q"], "fields": {"v": "float32[q, 1]"}},
}
#: The steps that a stacked struct refuses.
SINGLE = {"convert", "convert to a list", "python"}


def shown(held):
    """Values as `value` shows them."""
    if isinstance(held, tuple):
        return {name: shown(inner) for name, inner in held[1].items()}
    if isinstance(held, list):
        return [*map(shown, held)]
    if isinstance(held, dict):
        return {name: shown(inner) for name, inner in held.items()}
    return ("threefry2x32", held.words) if isinstance(held, Key) else held


def layers(held, count):
    """The values of so many equal instances as those of one with leading axes."""
    if isinstance(held, np.ndarray):
        return np.stack([held] * max(count, 1))[:count]
    if isinstance(held, tuple):
        return (held[0], {name: layers(inner, count) for name, inner in held[1].items()})
    if isinstance(held, Key):
        return Key(layers(held.words, count))
    if isinstance(held, list):
        return [layers(inner, count) for inner in held]
    if isinstance(held, dict):
        return {name: layers(inner, count) for name, inner in held.items()}
    return held


#: How the root holds the struct `B`: the type, and its value for that of an instance.
PLACES = {
    "nested": ("B", lambda b: b),
    "null": ("B | null", lambda _: None),
    "a list": ("list[B]", lambda b: [b]),
    "an empty list": ("list[B]", lambda _: []),
    "an empty dict": ("dict[str, B]", lambda _: {}),
    "lists in a dict": ("dict[str, list[B]]", lambda b: {"x": [], "y": [b, b]}),
    "a stack of none": ("B[][k]", lambda b: layers(b, 0)),
    "a stack of one": ("B[][k]", lambda b: layers(b, 1)),
    "a stack of two": ("B[][k]", lambda b: layers(b, 2)),
}


def chain(name, declared):
    """Both versions around a step."""
    before, after, step, _, _ = STEPS[name]
    sizes = {"s": "int8[n]", "t": "int8[m]"}
    moved = {"New": {"params": ["i", "j"], "fields": {"a": "float32[i, j]"}}}
    old = {"B": {**sizes, **before}, **(moved if name == "inline" else {})}
    new = {"B": {**sizes, **after}, **(moved if name == "move" else {})}
    step = step.model_copy(update={"within": "B"})
    more = {} if "structs" not in name else INSIDE
    return (
        documents(declared, {**old, **more}, 1),
        documents(declared, {**new, **more}, 2, [step]),
    )


def documents(declared, structs, version, steps=None):
    made = doc({"held": declared}, version, steps, structs={})
    data = made.to_data()
    data["structs"] |= {
        name: fields if "params" in fields else {"fields": fields}
        for name, fields in structs.items()
    }
    return document_from_data(data, "test")


@every("place", PLACES)
@every("name", STEPS)
def test_a_step_is_its_model_on_empty_values(name, place):
    declared, hold = PLACES[place]
    old, new = chain(name, declared)
    if "stack" in place and name in SINGLE:
        assert [d.code for d in prove(old, new) if d.severity == "error"] == ["NQX304"]
        return
    assert not has_errors(prove(old, new))
    *_, given, made = STEPS[name]
    for n, m in ((0, 0), (0, 1), (1, 0), (2, 1)):
        shows = {"s": np.zeros(n, "i1"), "t": np.zeros(m, "i1")}
        values = hold(("B", {**shows, **given(numbers(n, m))}))
        wanted = hold(("B", {**shows, **made(numbers(n, m))}))
        there = up(old, new, {"held": values})
        assert same(full(there), shown({"held": wanted}))
        back = apply(there, plan(series_of([old, new]), 2, 1))
        assert conforms(old, back) == []
        assert same(full(back), shown({"held": values}))


def full(held):
    """The values of a payload, with constant arrays in full."""

    def spelled(tree):
        if isinstance(tree, dict) and tree.get("__kind__") == "full":
            return np.full(tree["shape"], tree["value"], tree["dtype"])
        if isinstance(tree, dict):
            return {name: spelled(inner) for name, inner in tree.items()}
        return [*map(spelled, tree)] if isinstance(tree, list) else tree

    return spelled(value(held.document["manifest"], held.arrays))


# ---------------------------------------------------------------------------------------------------------------------
# Payloads that leave the result open.


EMPTY = {"d": {}, "e": []}
SHOWS = {"d": "dict[str, float32[n]]", "e": "list[int8[m]]"}
LAYER = {"L": {"w": "float32[p]"}}
#: By name: the fields before and after, the step, the values, the code and place of the stop, and values to choose.
OPEN = {
    "add": ({}, {"y": "bool[n]"}, build.add(field="y", default=True), {}, "NQX413", "$.y", {"y": np.ones(3, bool)}),
    "reshape": ({"k": "float32[n * m]"}, {"k": "float32[n, m]"}, build.reshape(field="k", shape=["n", "m"]),
        {"k": numbers(0)}, "NQX413", "$.k", {"k": numbers(0, 4)}),
    "reshape in a list": ({"k": "list[float32[2 * n, m]]"}, {"k": "list[float32[2, n, m]]"},
        build.reshape(field="k", shape=[2, "n", "m"]), {"k": [numbers(4, 0), numbers(4, 0)]}, None, "", {}),
    "split": ({"k": "float32[n + m]"}, {"a": "float32[n]", "b": "float32[m]"}, build.split(field="k", into={"a": "n", "b": "m"}),
        {"k": numbers(3)}, "NQX413", "$.k", {"a": numbers(1), "b": numbers(2)}),
    "split nothing": ({"k": "float32[n + m]"}, {"a": "float32[n]", "b": "float32[m]"}, build.split(field="k", into={"a": "n", "b": "m"}),
        {"k": numbers(0)}, None, "", {}),
    "stack": ({"k": "list[float32[i]]"}, {"k": "float32[j, i]"}, build.stack(field="k", size="j"),
        {"k": []}, "NQX432", "$.k", {"k": numbers(0, 2)}),
    "stack structs": ({"k": "list[L]"}, {"k": "L[][j]"}, build.stack(field="k", size="j"),
        {"k": []}, "NQX432", "$.k.w", {"k": {"w": numbers(0, 2)}}),
    "stack a family": ({"k": "list[floating[2]]"}, {"k": "floating[j, 2]"}, build.stack(field="k", size="j"),
        {"k": []}, "NQX432", "$.k", {"k": numbers(0, 2)}),
    "convert": ({"k": "list[float]"}, {"k": "float32[n]"}, build.convert(field="k", to="float32[n]"), {"k": []}, None, "", {}),
}  # fmt: skip


@every("name", OPEN)
def test_a_stop_names_a_python_step_that_chooses(name):
    before, after, step, values, code, path, chosen = OPEN[name]
    old = doc({**SHOWS, **before}, structs=LAYER)
    new = doc({**SHOWS, **after}, 2, [step], structs=LAYER)
    assert not has_errors(prove(old, new))
    if code is None:
        up(old, new, {**EMPTY, **values})
        return
    with pytest.raises(MigrationError) as caught:
        up(old, new, {**EMPTY, **values})
    (found,) = caught.value.diagnostics
    assert (found.code, found.path) == (code, path)
    assert "`python` step" in found.hint
    function("test.empty.choose")(lambda _: chosen)
    gone = [build.remove(field=field, lossy=True) for field in before if field not in after]
    python = build.python(
        function="test.empty.choose", reads=["d", *before], writes=[*chosen], lossy=True
    )
    followed = doc({**SHOWS, **after}, 2, [python, *gone], structs=LAYER)
    assert not has_errors(prove(old, followed))
    assert chosen.keys() <= full(up(old, followed, {**EMPTY, **values})).keys()


DICTS = {
    "the last key moves": (build.rename_path(field="o", path="a/w", to="b"), {"a": {"w": 1}, "c": 2}, {"a": {}, "c": 2, "b": 1}),
    "into an empty dict": (build.rename_path(field="o", path="b", to="a/w"), {"a": {}, "b": 1}, {"a": {"w": 1}}),
    "up by one level": (build.rename_path(field="o", path="a/w", to="a"), {"a": {"w": 1}, "c": 2}, {"c": 2, "a": 1}),
    "an entry comes": (build.add(field="o", path="a/w", default=7), {"a": {}}, {"a": {"w": 7}}),
    "the last entry goes": (build.remove(field="o", path="a/w", undo_default=7), {"a": {"w": 7}}, {"a": {}}),
    "an item of a list goes": (build.remove(field="o", path="a/0", undo_default=7), {"a": [7]}, {"a": []}),
    "an item of a list comes": (build.add(field="o", path="a/0", default=7), {"a": []}, {"a": [7]}),
    "an empty dict moves": (build.rename_path(field="o", path="a", to="b"), {"a": {}}, {"b": {}}),
}  # fmt: skip


@every(
    ("name", "store"),
    [
        *((name, "npz") for name in DICTS),
        *((next(iter(DICTS)), x) for x in ("safetensors", "orbax")),
    ],
)
def test_dicts_that_become_empty_stay(name, store, tmp_path):
    step, values, wanted = DICTS[name]
    for version, steps in ((1, None), (2, [step])):
        file = tmp_path / "lab" / f"v{version}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(s.dump_schema(doc({"o": "pytree", "w": "float32[n]"}, version, steps)))
    schema = s.load_schema(tmp_path / "lab")
    old = schema.at(1).A(o=values, w=np.zeros(0, "f4"))
    old.export(tmp_path / "old", store=store)
    assert schema.load(tmp_path / "old").o == wanted
    s.migrate(tmp_path / "old", tmp_path / "new", schema=tmp_path / "lab")
    assert s.verify(tmp_path / "new") == []
    s.migrate(tmp_path / "new", tmp_path / "back", to=1, schema=tmp_path / "lab")
    assert schema.at(1).load(tmp_path / "back").o == values
