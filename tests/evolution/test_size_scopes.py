"""Each size has one scope: a size of the root, of another instance or of a hidden dim is never that of a name beside it."""

import random

import numpy as np
import pytest

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.evolution import steps as s
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from tests.builders import bounded, conforms, doc, every, payload, refused, same, up, value

WIDTHS = (2, 3)  # of the two instances; the other names have other values


def merged_and_split(before, after, steps, root, layers, **options):
    """Goes up by a merge to a matrix of one vector, and back; returns both payloads' values."""
    structs = [{"Layer": fields} for fields in (before, after)]
    old = doc({**root[0], "layers": "list[Layer]"}, 1, structs=structs[0], **options)
    new = doc({**root[0], "layers": "list[Layer]"}, 2, steps, structs=structs[1], **options)
    assert [d for d in prove(old, new) if d.severity == "error"] == []
    values = {**root[1], "layers": [("Layer", layer) for layer in layers]}
    there = up(old, new, values)
    back = apply(there, plan(series_of([old, new]), 2, 1))
    assert conforms(old, back) == []
    return value(there.document["manifest"], there.arrays), value(
        back.document["manifest"], back.arrays
    )


def layer(width, out):
    numbers = np.arange(width + out, dtype="f4")
    return {"kernel": numbers[:width].copy(), "bias": numbers[width:].copy()}


ROOTS = {
    "an int of the root": ({"width": "int"}, {"width": 4}),
    "a static int of the root": ({"width": {"type": "int", "kind": "static"}}, {"width": 4}),
    "a size of the root": ({"x": "int8[width]"}, {"x": np.zeros(4, "i1")}),
}


@pytest.mark.parametrize("root", ROOTS.values(), ids=ROOTS)
def test_elements_stay_in_the_array_that_they_were_in(root):
    fields = {"kernel": "float32[width]", "bias": "float32[out]"}
    both = {"all": "float32[width + out]", "kept": "int8[width]"}
    steps = [s.merge(fields=["kernel", "bias"], into="all", how="concat", within="Layer")]
    layers = [{**layer(w, 5), "kept": np.zeros(w, "i1")} for w in WIDTHS]
    there, back = merged_and_split({**fields, "kept": "int8[width]"}, both, steps, root, layers)
    assert [x["all"].tolist() for x in there["layers"]] == [[*range(w + 5)] for w in WIDTHS]
    assert same(back["layers"], layers)


@pytest.mark.parametrize("equation", [None, "2 * k"])
def test_a_parameter_is_not_the_dim_that_it_hides(equation):
    structs = [
        {"params": ["width"], "fields": {"kernel": "float32[width]", "bias": "float32[3]"}},
        {"params": ["width"], "fields": {"all": "float32[width + 3]"}},
    ]

    def version(number):
        data = {"language": "1", "schema": "lab.a", "version": number, "root": "A"}
        data["dims"] = {"width": {"equals": equation} if equation else {}, "k": {}}
        fields = {"x": "int8[k]", "y": "int8[width]", "layers": "list[Layer[_]]"}
        data["structs"] = {"A": {"fields": fields}, "Layer": structs[number - 1]}
        step = {"fields": ["kernel", "bias"], "into": "all", "how": "concat", "in": "Layer"}
        data["migrations"] = [{"from": 1, "steps": [{"merge": step}]}] if number == 2 else []
        return document_from_data(data, "test")

    old, new = version(1), version(2)
    assert [d for d in prove(old, new) if d.severity == "error"] == []
    layers = [layer(w, 3) for w in WIDTHS]
    sizes = {"x": np.zeros(3, "i1"), "y": np.zeros(6, "i1")}
    values = {**sizes, "layers": [("Layer", each) for each in layers]}
    there = up(old, new, values)
    back = apply(there, plan(series_of([old, new]), 2, 1))
    assert same(value(back.document["manifest"], back.arrays)["layers"], layers)


def test_an_equation_is_not_proved_with_names_that_a_parameter_hides():
    """`m` is `2 * n` in the document, but in Layer n is a parameter."""

    def version(number, shape, steps=()):
        data = {"language": "1", "schema": "lab.a", "version": number, "root": "A"}
        data["dims"] = {"n": {}, "m": {"equals": "2 * n"}}
        data["structs"] = {
            "A": {"fields": {"x": "int8[n]", "layer": "Layer[_]"}},
            "Layer": {"params": ["n"], "fields": {"w": shape, "v": "int8[n]"}},
        }
        data["migrations"] = [{"from": 1, "steps": [*steps]}] if number == 2 else []
        return document_from_data(data, "test")

    for shape in ("float32[2 * n]", "float32[m]"):
        found = prove(version(1, "float32[m]"), version(2, shape))
        assert [d.code for d in found] == ([] if shape == "float32[m]" else ["NQX305"])
    reshape = {"reshape": {"field": "w", "shape": ["2", "n"], "in": "Layer"}}
    old, new = version(1, "float32[m]"), version(2, "float32[2, n]", [reshape])
    assert [d.code for d in prove(old, new) if d.severity == "error"] == ["NQX305"]


def test_dims_of_a_used_schema_are_those_of_one_instance():
    old = doc({"x": "int8[n]"}, dims={"n": {}})
    new = doc({"x": "int8[n]", "y": "float32[n]"}, 2, [s.add(field="y", default=1)], dims={"n": {}})
    one = payload(old, {"x": np.zeros(2, "i1")}).document["manifest"]
    other = payload(old, {"x": np.zeros(3, "i1")})
    two = other.document["manifest"]
    two["fields"]["x"]["name"] = "second"
    tree = {"__kind__": "list", "items": [one, two]}
    records = {name: {"dtype": "int8", "shape": [n]} for name, n in (("x", 2), ("second", 3))}
    document = {"version": 1, "manifest": tree, "arrays": records}
    arrays = {"x": np.zeros(2, "i1"), "second": np.zeros(3, "i1")}
    held = type(other)(document, arrays)
    made = apply(held, plan(series_of([old, new]), 1, 2)).document["manifest"]["items"]
    assert [each["fields"]["y"]["shape"] for each in made] == [[2], [3]]


@every("seed", range(40))
def test_names_in_all_scopes_agree_with_a_model(seed):
    """Random places for three names; a new array takes the size of the name in the scope of its struct."""
    choose = random.Random(seed)
    names = ["n", "m", "k"]
    dims = [name for name in names if choose.random() < 0.4]
    static = choose.choice([None, *names])
    params = [name for name in names if choose.random() < 0.3]
    shown = choose.choice(names)
    root = {f"r_{name}": f"int8[{name}]" for name in names if choose.random() < 0.5}
    if static:
        root[static] = {"type": "int", "kind": "static"}
    use = f"Layer[{', '.join('_' for _ in params)}]" if params else "Layer"
    own = {f"l_{name}": f"int8[{name}]" for name in names if choose.random() < 0.5}

    def version(number):
        data = {"language": "1", "schema": "lab.a", "version": number, "root": "A"}
        added = {"new": f"float32[{shown}]"} if number == 2 else {}
        data["dims"] = {name: {} for name in dims}
        data["structs"] = {
            "A": {"fields": {**root, "layers": f"list[{use}]"}},
            "Layer": {"params": params, "fields": {**own, "tag": "int", **added}},
        }
        step = {"add": {"field": "new", "default": 0, "in": "Layer"}}
        data["migrations"] = [{"from": 1, "steps": [step]}] if number == 2 else []
        return document_from_data(data, "test")

    # The model: one number for each name of the document, and one for each name of an instance.
    sizes = {name: choose.randint(0, 9) for name in names}
    local = [{n: choose.randint(0, 9) for n in names if n in params or n not in dims} for _ in "ab"]
    values = {field: np.zeros(sizes[field[2:]], "i1") for field in root if field != static}
    if static:
        values[static] = sizes[static]
    scopes = [{**sizes, **each} for each in local]
    values["layers"] = [
        ("Layer", {"tag": 0, **{f: np.zeros(scope[f[2:]], "i1") for f in own}}) for scope in scopes
    ]
    old, new = version(1), version(2)
    is_dim = shown in dims and shown not in params
    known = f"l_{shown}" in own or (is_dim and (f"r_{shown}" in root or shown == static))
    errors = [d.code for d in prove(old, new) if d.severity == "error"]
    assert errors == ([] if known else ["NQX105"])
    if known:
        there = up(old, new, values).document["manifest"]["fields"]["layers"]["items"]
        assert [x["fields"]["new"]["shape"] for x in there] == [[scope[shown]] for scope in scopes]


def test_a_step_needs_sizes_of_its_own_scope():
    structs = {"structs": {"Layer": {"w": "int8[_]"}}}
    old = doc({"width": "int", "x": "int8[width]", "layer": "Layer"}, **structs)
    with refused(SchemaError, "NQX105", "shape", "width"):
        s.apply_to_document(old, s.reshape(field="w", shape=["width"], within="Layer"), old)


def test_structs_in_structs_in_structs_are_looked_at_a_few_times():
    structs = {f"S{i}": dict.fromkeys("abcdefgh", f"S{i + 1}") for i in range(14)}
    structs["S14"] = {"x": "int8[n]"}
    document = doc({**dict.fromkeys("abcdefgh", "S0"), "w": "int8[k]"}, structs=structs)
    with bounded(), refused(SchemaError, "NQX105", "shape", "n"):
        s.apply_to_document(document, s.reshape(field="w", shape=["n"]), document)


#: Types before and after, the minimum that a dim ``n`` gets, and whether every payload has it where it shows ``n``.
IN_LISTS = {
    "a list of that length": ("list[B, n]", "list[B]", 1, True),
    "a list of twice that length": ("list[B, 2 * n]", "list[B]", 1, True),
    "a list of a product": ("list[B, n * p]", "list[B]", 1, True),
    "a list inside": ("list[dict[str, B | null], n] | null", "list[dict[str, B | null]] | null", 1, True),
    "a list around": ("list[list[B, p], n]", "list[list[B, p]]", 1, True),
    "arrays alone": ("list[int8[n], n]", "list[int8[n]]", 1, True),
    "an argument": ("list[C[n], n]", "list[C[n]]", 1, True),
    "arguments without a shape": ("list[C[n + 1], n]", "list[C[n + 1]]", 2, False),
    "a length that stays": ("list[B, n]", "list[B, n]", 1, False),
    "a higher minimum": ("list[B, n]", "list[B]", 2, False),
    "a list of a sum": ("list[B, n + p]", "list[B]", 1, False),
    "a list of another length": ("list[B, p]", "list[B]", 1, False),
    "a list of any length": ("list[B]", "list[B]", 1, False),
    "an instance beside it": ("tuple[list[B, n], B]", "tuple[list[B], B]", 1, False),
    "an equation of another list": ("list[D, n]", "list[D]", 1, True),
    "a stacked struct": ("B[n]", "B[n]", 1, False),
}  # fmt: skip


@every("name", IN_LISTS)
def test_an_empty_list_shows_no_size_of_its_items(name):
    before, after, least, accepted = IN_LISTS[name]
    raw = {
        "B": {"fields": {"w": "int8[n]"}},
        "C": {"params": ["s"], "fields": {"w": "int8[s]"}},
        "D": {"fields": {"w": "int8[q]"}},
    }
    dims = {"n": {}, "p": {}, "q": {"equals": "3 * n"}}
    old = doc({"p": "int8[p]", "x": before}, 1, raw=raw, dims=dims)
    new = doc({"p": "int8[p]", "x": after}, 2, raw=raw, dims={**dims, "n": {"min": least}})
    assert ([d.code for d in verdict(old, new, "backward")] == []) is accepted
    if accepted:
        assert conforms(new, payload(new, {"p": np.zeros(0, "i1"), "x": []})) == []


def test_a_name_that_arguments_have_is_taken():
    raw = {"B": {"params": ["s"], "fields": {"w": "int8[s]"}}}
    old = doc({"e": "int8[k]", "d": "B[2 * k]"}, 1, raw=raw)
    new = doc({"e": "int8[n]", "d": "B[2 * k]"}, 2, raw=raw)
    renamed = doc({"e": "int8[n]", "d": "B[2 * n]"}, 2, raw=raw)
    assert [d.code for d in verdict(old, new, "forward")] == ["NQX301"]
    assert verdict(old, renamed, "full") == []


def test_a_size_that_arguments_have_becomes_one_for_the_tree():
    fields = {"a": "int8[n]", "x": "list[D]"}
    raw = {
        "B": {"params": ["s"], "fields": {"w": "int8[s]"}},
        "D": {"fields": {"b": "B[n]"}},
    }
    old, new = doc(fields, 1, raw=raw), doc(fields, 2, raw=raw, dims={"n": {}})
    assert "NQX270" in {change.code for change in diff_documents(old, new)}
    assert [d.code for d in verdict(old, new, "full")] == ["NQX270"]


INTO_TWO = [
    s.rename(field="down", to="kernel"),
    s.move(fields=["kernel"], into="down", struct="Conv"),
    s.rename(field="up", to="kernel"),
    s.move(fields=["kernel"], into="up", struct="Conv"),
]


def test_fields_move_into_several_instances_that_have_sizes_of_their_own():
    conv = {"Conv": {"kernel": "float32[i, o]"}}
    old = doc({"down": "float32[c, c]", "up": "float32[c, c]"})
    new = doc({"down": "Conv", "up": "Conv"}, 2, INTO_TWO, structs=conv)
    assert {each.code for each in prove(old, new)} == {"NQX307"}  # not each downgrade
    values = {"down": np.ones((2, 2), "f4"), "up": np.zeros((2, 2), "f4")}
    there = up(old, new, values)
    assert conforms(new, there) == []
    back = apply(there, plan(series_of([old, new]), 2, 1))
    assert conforms(old, back) == []
    wider = payload(
        new,
        {
            "down": ("Conv", {"kernel": np.ones((2, 3), "f4")}),
            "up": ("Conv", {"kernel": np.ones((2, 2), "f4")}),
        },
    )
    narrowed = apply(wider, plan(series_of([old, new]), 2, 1))
    assert conforms(old, narrowed) != []


@pytest.mark.parametrize(("own", "codes"), [("m", {"NQX305"}), ("k", set())])
def test_a_parameter_is_no_size_of_the_struct_that_a_field_moves_into(own, codes):
    raw = {
        "D": {"params": ["m"], "fields": {"e": "int8[m]", "c": "int8[m]", "f": "C"}},
        "C": {"fields": {"g": f"int8[{own}]"}},
    }
    moved = {
        "D": {"params": ["m"], "fields": {"e": "int8[m]", "f": "C"}},
        "C": {"fields": {"g": f"int8[{own}]", "c": "int8[m]"}},
    }
    fields, dims = {"a": "int8[n]", "d": "D[2 * n]"}, {"n": {}}
    old = doc(fields, 1, raw=raw, dims=dims)
    steps = [s.move(fields=["c"], into="f", struct="C", within="D")]
    new = doc(fields, 2, steps, raw=moved, dims=dims)
    assert {each.code for each in prove(old, new) if each.severity == "error"} == codes


def test_fields_of_other_shapes_make_no_further_instance_of_a_struct():
    conv = {"Conv": {"kernel": "float32[i, i]"}}
    old = doc({"down": "float32[c, c]", "up": "float32[c, d]"})
    new = doc({"down": "Conv", "up": "Conv"}, 2, INTO_TWO, structs=conv)
    assert "NQX304" in {each.code for each in prove(old, new)}


def test_an_int_that_an_alias_gives_the_name_of_a_size_is_not_that_size():
    static = {"type": "int", "kind": "static"}
    old = doc({"a": "int8[k]", "m": static})
    new = doc({"a": "int8[k]", "k": {**static, "aliases": ["m"]}}, 2, compatibility="backward")
    assert [
        found.code for found in lint_series(series_of([old, new])) if found.severity == "error"
    ] == ["NQX301"]
