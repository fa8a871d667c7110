"""Laws of steps, wherever they apply: in lists, dicts, tuples, optional and nested structs, parameterised ones, other schemas.

Each step of ``test_steps.py`` is put inside a struct that stands in every kind of place. Up gives what was expected, at
each instance; down gives back every bit; the payload conforms to what the declaration says after every step.
"""

import json

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.evolution import steps as build
from neuralqx_struct.evolution.differences import differences
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps import stages_of
from neuralqx_struct.manifest.payload import Payload, check
from neuralqx_struct.schema.conformance import conform, see_node
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.schema.uses import among, link
from tests.builders import STEPS, conforms, doc, every, node, payload, same, up, value

#: How the root holds the struct `B`: the type, a value that holds instances, and how deep the instances lie.
PLACES = {
    "nested": ("B", lambda b: b),
    "optional": ("B | null", lambda b: b),
    "list": ("list[B]", lambda b: [b, b]),
    "dict": ("dict[str, B]", lambda b: {"one": b, "two/three": b}),
    "list of dicts": ("list[dict[str, B | null]]", lambda b: [{"x": b, "y": None}, {}]),
    "union": ("B | C", lambda b: b),
    "deep": ("C", lambda b: ("C", {"inner": [b]})),
    "null": ("B | null", lambda _: None),
    "empty list": ("list[B]", lambda _: []),
    "empty dicts": ("dict[str, dict[str, B]]", lambda _: {"x": {}}),
}
#: Cases whose values are plain Python and numpy; the others have nodes of their own and are looked at in test_steps.
CASES = {
    name: case
    for name, case in STEPS.items()
    if not any(isinstance(v, dict) and "__kind__" in v for v in case[3].values())
}


def around(declared, fields, version, steps=None):
    """A document whose root holds `B`; `C` holds it too, so that it can be found inside another struct."""
    structs = {"B": fields, "C": {"inner": "list[B]"}}
    return doc({"held": declared, "own": "int"}, version, steps, structs=structs)


def within(step):
    return step.model_copy(update={"within": "B"})


def plain(made):
    return value(made.document["manifest"], made.arrays)


def unwrapped(values):
    """Values as `value` shows them: instances as dicts of their fields."""
    if isinstance(values, tuple):
        if isinstance(values[1], dict):
            return {name: unwrapped(inner) for name, inner in values[1].items()}
        return values  # a key: its implementation and its words
    if isinstance(values, list):
        return [*map(unwrapped, values)]
    return (
        {k: unwrapped(v) for k, v in values.items()}
        if isinstance(values, dict) and "__kind__" not in values
        else values
    )


@every("place", PLACES)
@every("name", CASES)
def test_a_step_reaches_every_instance_and_is_undone(name, place):
    fields, wanted, step, values, expected = CASES[name]
    declared, hold = PLACES[place]
    old, new = around(declared, fields, 1), around(declared, wanted, 2, [within(step)])
    assert [d for d in prove(old, new) if d.severity == "error"] == []
    there = up(old, new, {"held": hold(("B", values)), "own": 1})
    assert same(plain(there), unwrapped({"held": hold(("B", expected)), "own": 1}))
    if name == "fill":  # null is gone for good: a downgrade has nothing to do
        return
    back = apply(there, plan(series_of([old, new]), 2, 1))
    assert conforms(old, back) == []
    assert same(plain(back), unwrapped({"held": hold(("B", values)), "own": 1}))


@every("name", CASES)
def test_what_payloads_become_is_what_the_declaration_says(name):
    fields, wanted, step, values, _ = CASES[name]
    old, new = doc(fields), doc(wanted, 2, [step])
    (stage,) = stages_of(old, [step], new)
    assert (
        differences(stage.after, new)
        == differences(new, stage.after.model_copy(update={"version": 2}))
        == []
    )
    assert conforms(new, up(old, new, values)) == []


# ---------------------------------------------------------------------------------------------------------------------
# Shared arrays, parameters, other schemas.


#: A downgrade copies the other field: it has no array of its own, even where the one that was removed had one.
COPIED = "remove a copy"


@every(
    "name",
    [
        n
        for n, c in CASES.items()
        if n != COPIED and any(isinstance(v, np.ndarray) for v in c[3].values())
    ],
)
def test_an_array_that_two_places_share_is_shared_again(name):
    fields, wanted, step, values, _ = CASES[name]
    old, new = around("list[B]", fields, 1), around("list[B]", wanted, 2, [within(step)])
    held = payload(old, {"held": [("B", values), ("B", values)], "own": 1})
    document = json.loads(json.dumps(held.document).replace('"held/1/', '"held/0/'))
    document["arrays"] = {
        k: v for k, v in document["arrays"].items() if not k.startswith("held/1/")
    }
    shared = Payload(document, {k: v for k, v in held.arrays.items() if k in document["arrays"]})
    assert conforms(old, shared) == []
    there = apply(shared, plan(series_of([old, new]), 1, 2))
    first, second = there.document["manifest"]["fields"]["held"]["items"]
    assert first == second
    back = apply(there, plan(series_of([old, new]), 2, 1))
    assert plain(back)["held"][0].keys() == values.keys()
    assert back.document["arrays"].keys() == document["arrays"].keys()
    assert same(plain(back), plain(shared))


PARAMETERS = {
    "cast": ({"w": "float32[p, q]"}, {"w": "float64[p, q]"}, build.cast(field="w", dtype="float64")),
    "transpose": ({"w": "float32[p, q]"}, {"w": "float32[q, p]"}, build.transpose(field="w")),
    "reshape": ({"w": "float32[p, q]"}, {"w": "float32[p * q]"}, build.reshape(field="w", shape=["p * q"])),
    "split": ({"w": "float32[p + q]"}, {"u": "float32[p]", "v": "float32[q]"}, build.split(field="w", into={"u": "p", "v": "q"})),
    "merge": ({"u": "float32[p]", "v": "float32[p]"}, {"w": "float32[2 * p]"}, build.merge(fields=["u", "v"], into="w", how="concat")),
    "rename": ({"w": "float32[p]"}, {"x": "float32[p]"}, build.rename(field="w", to="x")),
    "add": ({"w": "float32[p]"}, {"w": "float32[p]", "x": "float32[q]"}, build.add(field="x", default=1)),
}  # fmt: skip


def parameterised(fields, version, steps=None):
    steps = (
        None
        if steps is None
        else [{build.step_name(x): x.model_dump(by_alias=True, exclude_unset=True)} for x in steps]
    )
    data = {
        "language": "1",
        "schema": "lab.a",
        "version": version,
        "root": "A",
        "structs": {
            "A": {"fields": {"one": "B[n, 2]", "many": "list[B[_, _]]", "size": "int8[n]"}},
            "B": {"params": ["p", "q"], "fields": {**fields, "sizes": "int8[p, q]"}},
        },
        **({"migrations": [{"from": 1, "steps": steps}]} if steps is not None else {}),
    }
    return document_from_data(data, "test")


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_mean_what_they_are_bound_to(name):
    fields, wanted, step = PARAMETERS[name]
    old, new = parameterised(fields, 1), parameterised(wanted, 2, [within(step)])
    assert [d for d in prove(old, new) if d.severity == "error"] == []

    def instance(p, q):
        shapes = {"p": p, "q": q, "p, q": (p, q), "p + q": p + q}
        made = {
            f: np.arange(np.prod(shapes[t[8:-1]]), dtype="f4").reshape(shapes[t[8:-1]])
            for f, t in fields.items()
        }
        return ("B", {**made, "sizes": np.zeros((p, q), "i1")})

    values = {
        "one": instance(3, 2),
        "many": [instance(1, 4), instance(5, 1)],
        "size": np.zeros(3, "i1"),
    }
    there = up(old, new, values)
    back = apply(there, plan(series_of([old, new]), 2, 1))
    assert conforms(old, back) == []
    assert same(plain(back), unwrapped(values))


@every("name", CASES)
def test_the_steps_of_a_used_schema_run_inside_those_that_use_it(name):
    fields, wanted, step, values, expected = CASES[name]
    old, new = doc(fields, 1), doc(wanted, 2, [step])
    users = []
    for version, used in ((1, old), (2, new)):
        data = {
            "language": "1",
            "schema": "lab.top",
            "version": version,
            "root": "T",
            "uses": [f"lab.a@{version}"],
        }
        data["structs"] = {"T": {"fields": {"one": "lab.a.A", "more": "list[lab.a.A | null]"}}}
        migrations = [{"from": 1, "steps": [{"rename": {"field": "more", "to": "others"}}]}]
        if version == 2:
            data["structs"]["T"]["fields"] = {"one": "lab.a.A", "others": "list[lab.a.A | null]"}
            data["migrations"] = migrations
        users.append(link(document_from_data(data, "top"), among([old, new])))
    assert [d for d in prove(*users) if d.severity == "error"] == []
    arrays = {}
    inner = [node(("A", values), arrays, f"x{i}", old) for i in range(2)]
    tree = {
        "__kind__": "struct",
        "type": "lab.top@1:T",
        "fields": {"one": inner[0], "more": {"__kind__": "list", "items": [inner[1], None]}},
    }
    held = payload(old, values).document
    records = {k: {"dtype": str(v.dtype), "shape": list(v.shape)} for k, v in arrays.items()}
    held = Payload({**held, "schema": None, "manifest": tree, "arrays": records}, arrays)
    held.document.pop("schema")
    assert check(held) == []
    series = series_of(users)
    there = apply(held, plan(series, 1, 2), others={"lab.a": series_of([old, new])})
    assert conform(users[1], "T", there.document["manifest"], see_node) == []
    assert same(plain(there), {"one": unwrapped(expected), "others": [unwrapped(expected), None]})
    if name != "fill":
        back = apply(there, plan(series, 2, 1), others={"lab.a": series_of([old, new])})
        assert conform(users[0], "T", back.document["manifest"], see_node) == []
        assert same(plain(back), {"one": unwrapped(values), "more": [unwrapped(values), None]})


# ---------------------------------------------------------------------------------------------------------------------
# The same through files, classes and bundles.


@pytest.mark.parametrize(
    "name",
    [
        "rename",
        "remove",
        "transpose a square",
        "split",
        "merge complex",
        "fill what is there",
        "wrap_key",
    ],
)
def test_a_bundle_goes_up_and_down_and_is_what_it_was(name, tmp_path):
    fields, wanted, step, _, _ = STEPS[name]
    for version, document in ((1, doc(fields)), (2, doc(wanted, 2, [step]))):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"v{version}.json").write_text(json.dumps(document.to_data()))
    schema = s.load_schema(tmp_path / "a")
    old = s.example(schema.at(1).A)
    if name == "remove":
        old = old.replace(b=3)  # what the step says a removed value was
    if name == "fill what is there":
        old = old.replace(a=5)
    if name == "merge complex":
        old = old.replace(a=np.array(1.5), b=np.array(-2.5))
    old.export(tmp_path / "old")
    new = schema.load(tmp_path / "old")
    assert isinstance(new, schema.A)
    if name == "transpose a square":
        assert np.array_equal(new.a, np.asarray(old.a).T)
    new.export(tmp_path / "new")
    s.migrate(tmp_path / "new", tmp_path / "back", to=1, schema=tmp_path / "a")
    assert schema.at(1).load(tmp_path / "back") == old
