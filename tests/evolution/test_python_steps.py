"""Steps that run registered functions, and the step that renames members of enums."""

import json
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from neuralqx_struct import export, load_schema
from neuralqx_struct.errors import MigrationError, SchemaError, StructError
from neuralqx_struct.evolution import steps as s
from neuralqx_struct.evolution.changes import LIMITS
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.evolution.steps.python import find_function, function, name_of
from neuralqx_struct.schema.series import carried_series, series_of
from neuralqx_struct.tools.linting import lint_series
from tests.builders import conforms, doc, every, payload, refused, same, value


@function("test.invert")
def invert(values):
    assert not values["mask"].flags.writeable
    return {"mask": ~values["mask"]}


@function("test.norm")
def norm(values):
    return {"norm": float(np.linalg.norm(values["w"]))}


@function("test.widen")
def widen(values):
    return {"w": np.repeat(values["w"], 2), "n": values["n"] * 2}


@function("test.narrow")
def narrow(values):
    return {"w": values["w"][::2], "n": values["n"] // 2}


@function("test.wrong")
def wrong(values):
    return WRONG[values["n"]]()


def raising():
    raise ZeroDivisionError("no")


def leaving():
    raise SystemExit("no")


WRONG = {
    0: lambda: {"n": 1, "extra": 2},
    1: dict,
    2: lambda: 7,
    3: raising,
    4: lambda: {"n": "text"},
    5: lambda: {"n": object()},
    6: leaving,
}


def chain(old_fields, new_fields, steps, **members):
    return doc(old_fields, 1, **members), doc(new_fields, 2, steps, **members)


INVERT = s.python(function=invert, inverse=invert, reads=["mask"], writes=["mask"])


def test_a_step_between_two_declarations_that_look_equal_is_applied():
    series = series_of(chain({"mask": "bool[n]"}, {"mask": "bool[n]"}, [INVERT]))
    assert [d.code for d in prove(*series.documents.values())] == ["NQX317"]
    mask = np.array([True, False, False])
    held = payload(series.at(1), {"mask": mask})
    up = apply(held, plan(series, 1, 2))
    assert same(value(up.document["manifest"], up.arrays), {"mask": ~mask})
    down = apply(up, plan(series, 2, 1))
    assert same(value(down.document["manifest"], down.arrays), {"mask": mask})
    assert plan(series, 1, 2).cost == "opaque" and mask.tolist() == [True, False, False]


def test_functions_may_give_arrays_and_scalars_of_jax():
    def scale(values):
        w = jnp.asarray(values["w"])
        return {"w": 2 * w, "norm": jnp.sum(w), "n": w.size * jnp.int32(1), "all": [w[0]]}

    function("test.scale")(scale)
    step = s.python(
        function="test.scale", reads=["w"], writes=["w", "norm", "n", "all"], lossy=True
    )
    new = {"w": "float32[n]", "norm": "float", "n": "int", "all": "list[float]"}
    series = series_of(chain({"w": "float32[n]"}, new, [step]))
    held = payload(series.at(1), {"w": np.array([3.0, 4.0], "f4")})
    up = apply(held, plan(series, 1, 2))
    assert conforms(series.at(2), up) == []
    found = value(up.document["manifest"], up.arrays)
    assert [float(found[name]) for name in ("norm", "n")] == [7.0, 2.0]
    assert found["w"].tolist() == [6.0, 8.0] and float(found["all"][0]) == 3.0


def test_what_is_computed_from_other_fields_needs_no_inverse():
    step = s.python(function="test.norm", reads=["w"], writes=["norm"])
    series = series_of(chain({"w": "float32[n]"}, {"w": "float32[n]", "norm": "float"}, [step]))
    held = payload(series.at(1), {"w": np.array([3.0, 4.0], "f4")})
    up = apply(held, plan(series, 1, 2))
    assert (
        conforms(series.at(2), up) == []
        and value(up.document["manifest"], up.arrays)["norm"] == 5.0
    )
    down = apply(up, plan(series, 2, 1))
    assert conforms(series.at(1), down) == [] and list(
        value(down.document["manifest"], down.arrays)
    ) == ["w"]


def test_every_instance_of_a_struct_is_given_to_the_function():
    step = s.python(
        function=widen, inverse=narrow, reads=["w", "n"], writes=["w", "n"], within="Layer"
    )
    layer = {"Layer": {"w": "int32[k]", "n": "int"}}
    series = series_of(
        chain({"layers": "list[Layer]"}, {"layers": "list[Layer]"}, [step], structs=layer)
    )
    layers = [("Layer", {"w": np.arange(i, dtype="i4"), "n": i}) for i in range(3)]
    held = payload(series.at(1), {"layers": layers})
    up = apply(held, plan(series, 1, 2))
    assert conforms(series.at(2), up) == []
    assert [layer["n"] for layer in value(up.document["manifest"], up.arrays)["layers"]] == [
        0,
        2,
        4,
    ]
    down = apply(up, plan(series, 2, 1))
    assert same(
        value(down.document["manifest"], down.arrays), value(held.document["manifest"], held.arrays)
    )


@pytest.mark.parametrize(
    ("n", "code", "named"),
    [
        (0, "NQX311", ["test.wrong", "n", "extra"]),
        (1, "NQX312", ["test.wrong", "n"]),
        (2, "NQX312", ["test.wrong", "int"]),
        (3, "NQX312", ["test.wrong", "ZeroDivisionError: no"]),
        (6, "NQX312", ["test.wrong", "SystemExit: no"]),
        (4, "NQX411", ["$.n", "test.wrong", "'text'"]),
        (5, "NQX430", ["$.n"]),
    ],
)
def test_what_a_function_does_wrong_is_told(n, code, named):
    step = s.python(function="test.wrong", reads=["n"], writes=["n"], lossy=True)
    series = series_of(chain({"n": "int"}, {"n": "int"}, [step]))
    with refused(StructError, code, *named) as caught:
        apply(payload(series.at(1), {"n": n}), plan(series, 1, 2))
    assert len(caught.value.diagnostics) == 1


@pytest.mark.parametrize(
    ("step", "code", "message"),
    [
        ({"reads": ["nope"], "writes": ["mask"]}, "NQX304", "'nope'"),
        ({"reads": ["mask"], "writes": ["masc"]}, "NQX304", "did you mean"),
        (
            {"reads": ["mask"], "writes": ["mask"], "inverse": None},
            "NQX308",
            "expected inverse or lossy: true",
        ),
        (
            {"reads": ["key"], "writes": ["mask"]},
            "NQX304",
            "prng_key",
        ),
        ({"reads": ["inner"], "writes": ["mask"]}, "NQX304", "prng_key"),
        ({"reads": ["mask"], "writes": ["inner"]}, "NQX304", "prng_key"),
    ],
)
def test_wrong_steps_are_told_when_the_schema_is_read(step, code, message):
    fields = {"mask": "bool[n]", "key": "prng_key[threefry2x32]", "inner": "B"}
    given = {"function": "test.invert", "inverse": "test.invert", **step}
    given = {name: v for name, v in given.items() if v is not None}
    structs = {"B": {"x": "list[C]"}, "C": {"key": "prng_key"}}
    old, new = chain(fields, fields, [s.python(**given)], structs=structs)
    found = prove(old, new)
    assert [d.code for d in found] == [code] and message in str(found[0])


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ({"ge": 0}, {"ge": 0}, ["NQX270"]),
        ({}, {"ge": 0}, ["NQX270"]),
        ({"ge": 0, "le": 9}, {"ge": 1, "le": 8}, ["NQX270"]),
        ({"ge": 1}, {"ge": 0}, ["NQX270"]),
        ({"ge": 0}, {}, ["NQX271"]),
        ({}, {}, []),
    ],
)
def test_limits_on_a_field_that_a_function_computes_are_one_finding(before, after, codes):
    step = s.python(function="test.wrong", inverse="test.wrong", reads=["n"], writes=["n"])
    old, new = ({"n": {"type": "int", **limits}} for limits in (before, after))
    old, new = chain(old, new, [step])
    assert [c.code for c in diff_documents(old, new) if c.code in LIMITS] == codes
    lint = [d.code for d in lint_series(series_of([old, new]))]
    assert lint.count("NQX270") == codes.count("NQX270")


def test_limits_on_a_computed_field_that_is_converted_later():
    step = s.python(function="test.wrong", inverse="test.wrong", reads=["n"], writes=["n"])
    old, new = chain({"n": {"type": "int", "le": 5}}, {"n": "int"}, [step])
    last = doc({"n": {"type": "float", "le": 5}}, 3, [s.convert(field="n", to="float")])
    found = verdict([old], series_of([old, new, last]), "backward")
    assert [each.code for each in found] == ["NQX270"]


def test_a_lossy_step_has_no_way_back():
    step = s.python(function="test.invert", reads=["mask"], writes=["mask"], lossy=True)
    series = series_of(chain({"mask": "bool[n]"}, {"mask": "bool[n]"}, [step]))
    with refused(MigrationError, "NQX423", "$.migrations[0].steps[0].python.function"):
        plan(series, 2, 1)


def test_a_function_that_a_bundle_asks_for_runs_only_when_it_is_trusted():
    series = series_of(chain({"mask": "bool[n]"}, {"mask": "bool[n]"}, [INVERT]))
    carried = carried_series({"schemas": [d.to_data() for d in series.documents.values()]})["lab.a"]
    held = payload(series.at(1), {"mask": np.array([True])})
    with refused(MigrationError, "NQX312", "test.invert", __name__):
        apply(held, plan(carried, 1, 2))
    # A name that begins as the trusted one is another package, which anybody can publish.
    with refused(MigrationError, "NQX312", "test.invert"):
        apply(held, plan(carried, 1, 2), trust=[__name__[:-1]])
    for trusted in (__name__, __name__.partition(".")[0]):
        up = apply(held, plan(carried, 1, 2), trust=[trusted])
        assert up.arrays["mask"].tolist() == [False]
    # What the reader brought along wins, and is trusted; the rest of the chain is not.
    assert series_of([series.at(2)]).merged([series.at(1)]).carried == {1}


def test_functions_are_found_by_name(monkeypatch):
    assert find_function("test.invert", own=True) is invert
    assert name_of(invert) == "test.invert" and name_of("anything") == "anything"
    with refused(MigrationError, "NQX312", "'test.invertt'", "'test.invert'"):
        find_function("test.invertt", own=True)
    with refused(MigrationError, "NQX312", "'os.system'", "'os'", "trust=['lab.migrations']"):
        find_function("os.system", own=True, trust=["os"])
    with refused(MigrationError, "NQX312", "x.y", "no_such_module"):
        find_function("x.y", own=True, trust=["no_such_module"])
    with refused(TypeError, "<lambda>", "@steps.function('lab.name')"):
        name_of(lambda values: values)
    with refused(TypeError, "steps.function()", "invert"):
        function(invert)
    with refused(TypeError, "steps.function('test.seven')", 7):
        function("test.seven")(7)


def test_a_trusted_module_is_imported(tmp_path, monkeypatch):
    (tmp_path / "planted_steps.py").write_text(
        "import neuralqx_struct as s\n@s.steps.function('planted.flip')\ndef flip(values): return values\n"
    )
    (tmp_path / "planted_broken.py").write_text("1 / 0\n")
    (tmp_path / "planted_exit.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MigrationError):
        find_function("planted.flip", own=True)
    assert "planted_steps" not in sys.modules
    with refused(MigrationError, "NQX312", "ZeroDivisionError", "planted_broken"):
        find_function("planted.flip", own=False, trust=["planted_broken"])
    with refused(MigrationError, "NQX312", "SystemExit", "planted_exit"):
        find_function("planted.flip", own=False, trust=["planted_exit"])
    assert isinstance(
        find_function("planted.flip", own=False, trust=["planted_steps"]), types.FunctionType
    )


# ---------------------------------------------------------------------------------------------------------------------
# map_enum

ENUMS = {"enums": {"Init": ["normal", "uniform", "zeros"]}}


def enum_chain(step, new_members):
    fields = {
        "init": "Init",
        "more": "list[Init | null]",
        "by": "dict[str, Init]",
        "pair": "tuple[int, Init]",
    }
    old = doc(fields, 1, enums={"Init": ["normal", "uniform", "zeros"]})
    return series_of([old, doc(fields, 2, [step], enums={"Init": new_members})])


VALUES = {
    "init": "normal",
    "more": ["zeros", None, "normal"],
    "by": {"a": "uniform", "normal": "normal"},
}


def enum_payload(series):
    held = payload(series.at(1), VALUES)
    held.document["manifest"]["fields"]["pair"] = {"__kind__": "tuple", "items": [1, "normal"]}
    return held


def test_every_value_of_an_enum_gets_its_new_name():
    series = enum_chain(
        s.map_enum(enum="Init", values={"normal": "gaussian"}), ["gaussian", "uniform", "zeros"]
    )
    assert prove(*series.documents.values()) == []
    held = enum_payload(series)
    up = apply(held, plan(series, 1, 2))
    assert conforms(series.at(2), up) == []
    fields = up.document["manifest"]["fields"]
    assert (fields["init"], fields["pair"]["items"]) == ("gaussian", [1, "gaussian"])
    assert fields["more"]["items"] == ["zeros", None, "gaussian"]
    assert fields["by"]["items"] == [["a", "uniform"], ["normal", "gaussian"]]
    down = apply(up, plan(series, 2, 1))
    assert down.document["manifest"] == held.document["manifest"]


def test_members_that_become_one_need_a_way_back():
    both = {"normal": "random", "uniform": "random"}
    told = prove(
        *enum_chain(s.map_enum(enum="Init", values=both), ["random", "zeros"]).documents.values()
    )
    assert [d.code for d in told] == ["NQX308"] and "{random: normal}" in str(told[0])
    series = enum_chain(
        s.map_enum(enum="Init", values=both, undo={"random": "uniform"}), ["random", "zeros"]
    )
    assert prove(*series.documents.values()) == []
    down = apply(apply(enum_payload(series), plan(series, 1, 2)), plan(series, 2, 1))
    assert (
        down.document["manifest"]["fields"]["init"] == "uniform"
        and conforms(series.at(1), down) == []
    )
    lossy = enum_chain(s.map_enum(enum="Init", values=both, lossy=True), ["random", "zeros"])
    assert (
        apply(enum_payload(lossy), plan(lossy, 1, 2)).document["manifest"]["fields"]["init"]
        == "random"
    )
    with refused(MigrationError, "NQX423", "$.migrations[0].steps[0].map_enum.values"):
        plan(lossy, 2, 1)


def test_literal_strings_of_a_field_get_new_names():
    step = s.map_enum(field="mode", values={"a": "c"})
    series = series_of(
        chain({"mode": 'literal["a", "b"] | null'}, {"mode": 'literal["c", "b"] | null'}, [step])
    )
    assert prove(*series.documents.values()) == []
    for old, new in [("a", "c"), ("b", "b"), (None, None)]:
        held = payload(series.at(1), {"mode": old})
        up = apply(held, plan(series, 1, 2))
        assert up.document["manifest"]["fields"]["mode"] == new and conforms(series.at(2), up) == []
        assert apply(up, plan(series, 2, 1)).document["manifest"]["fields"]["mode"] == old


@pytest.mark.parametrize(
    ("step", "code", "message"),
    [
        (s.map_enum(enum="Inti", values={"normal": "n"}), "NQX304", "'Init'"),
        (s.map_enum(enum="Init", values={"norml": "n"}), "NQX304", "'normal'"),
        (s.map_enum(enum="Init", values={"normal": "normal"}), "NQX306", "name"),
        (s.map_enum(values={"normal": "n"}), "NQX304", "`field`"),
        (
            s.map_enum(field="init", values={"normal": "n"}),
            "NQX304",
            "Init",
        ),
    ],
)
def test_wrong_names_are_told(step, code, message):
    found = prove(*enum_chain(step, ["normal", "uniform", "zeros"]).documents.values())
    assert [d.code for d in found] == [code] and message in str(found[0])


def test_steps_print_as_they_are_written():
    assert s.step_text(INVERT) == (
        "- python: {function: test.invert, reads: [mask], writes: [mask], inverse: test.invert}"
    )
    assert (
        s.step_text(s.map_enum(enum="Init", values={"a": "b"}))
        == "- map_enum: {enum: Init, values: {a: b}}"
    )
    with pytest.raises(SchemaError):
        chain(
            {"n": "int"},
            {"n": "int"},
            [s.python(function="f", reads=["n"], writes=["n"]).model_copy(update={"reads": []})],
        )


# ---------------------------------------------------------------------------------------------------------------------
# Structs are dicts of their fields.


@function("test.negate")
def negate(values):
    return {name: negated(value) for name, value in values.items()}


def negated(value):
    if isinstance(value, dict):
        return {key: negated(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [*map(negated, value)]
    return None if value is None else np.array(-value) if isinstance(value, np.ndarray) else -value


LAYER = {
    "Layer": {"w": "float32[k]", "inner": "Inner | null", "n": "int"},
    "Inner": {"b": "float64[]"},
}


def layer(n, k=2, inner=True):
    held = ("Inner", {"b": np.array(0.5 * n)}) if inner else None
    return ("Layer", {"w": np.full(k, n, "f4"), "inner": held, "n": n})


STRUCTS = {
    "a struct": ("Layer", layer(1)),
    "optional": ("Layer | null", layer(1)),
    "null": ("Layer | null", None),
    "a list": ("list[Layer]", [layer(1), layer(2, k=3, inner=False)]),
    "an empty list": ("list[Layer]", []),
    "a dict": ("dict[str, Layer]", {"x": layer(1), "y/z": layer(2, k=0)}),
    "an empty dict": ("dict[str, Layer]", {}),
    "a union": ("Layer | Inner", ("Inner", {"b": np.array(3.0)})),
    "unions in a list": ("list[Inner | Layer]", [("Inner", {"b": np.array(3.0)}), layer(1)]),
}  # fmt: skip


@every("name", STRUCTS)
def test_functions_read_and_write_structs_as_dicts(name):
    declared, held = STRUCTS[name]
    step = s.python(function="test.negate", inverse="test.negate", reads=["f"], writes=["f"])
    series = series_of(chain({"f": declared}, {"f": declared}, [step], structs=LAYER))
    assert [d.code for d in prove(*series.documents.values())] == ["NQX317"]
    below = payload(series.at(1), {"f": held})
    there = apply(below, plan(series, 1, 2))
    assert conforms(series.at(2), there) == []
    seen = value(below.document["manifest"], below.arrays)
    assert same(value(there.document["manifest"], there.arrays), negated(seen))
    back = apply(there, plan(series, 2, 1))
    assert conforms(series.at(1), back) == []
    assert same(value(back.document["manifest"], back.arrays), seen)


def test_functions_see_stacked_structs_with_their_leading_axes():
    fields = {"layers": "Layer[][n]"}
    structs = {"Layer": {"w": "float32[k]", "inner": "Inner"}, "Inner": {"b": "float64[]"}}
    seen = []

    def look(values):
        seen.append({name: array.shape for name, array in values["layers"].items() if name == "w"})
        return negate(values)

    function("test.look")(look)
    step = s.python(function="test.look", inverse="test.look", reads=["layers"], writes=["layers"])
    series = series_of(chain(fields, fields, [step], structs=structs))
    for count in (2, 1, 0):
        inner = ("Inner", {"b": np.ones(count)})
        held = payload(
            series.at(1), {"layers": ("Layer", {"w": np.ones((count, 3), "f4"), "inner": inner})}
        )
        there = apply(held, plan(series, 1, 2))
        assert conforms(series.at(2), there) == []
        assert seen.pop() == {"w": (count, 3)}
        assert (
            value(there.document["manifest"], there.arrays)["layers"]["w"].tolist()
            == [[-1] * 3] * count
        )


def test_a_struct_that_only_the_written_field_holds_gets_the_fields_of_the_new_version():
    def grown(values):
        return {"f": {"w": values["f"]["w"], "parts": [{"n": values["f"]["n"]}]}}

    def shrunk(values):
        return {"f": {"w": values["f"]["w"], "n": values["f"]["parts"][0]["n"]}}

    function("test.grown")(grown), function("test.shrunk")(shrunk)
    step = s.python(function="test.grown", inverse="test.shrunk", reads=["f"], writes=["f"])
    old = doc({"f": "A1"}, structs={"A1": {"w": "float32[k]", "n": "int"}})
    structs = {"A1": {"w": "float32[k]", "parts": "list[Part]"}, "Part": {"n": "int"}}
    series = series_of([old, doc({"f": "A1"}, 2, [step], structs=structs)])
    held = payload(old, {"f": ("A1", {"w": np.ones(2, "f4"), "n": 7})})
    there = apply(held, plan(series, 1, 2))
    assert conforms(series.at(2), there) == []
    assert value(there.document["manifest"], there.arrays)["f"]["parts"] == [{"n": 7}]
    back = apply(there, plan(series, 2, 1))
    assert same(
        value(back.document["manifest"], back.arrays), value(held.document["manifest"], held.arrays)
    )


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({}, "$.f.w"),
        ({"w": np.ones(2, "f4"), "inner": None, "n": "x"}, "$.f.n"),
        ({"w": np.ones(2, "f4"), "inner": None, "n": 1, "m": 1}, "$.f.m"),
        ({"w": np.ones(2, "f4"), "inner": {"b": 1j}, "n": 1}, "$.f.inner"),
        (7, "$.f"),
    ],
)
def test_wrong_structs_are_refused_with_their_place(given, path):
    function("test.given")(lambda _: {"f": given})
    step = s.python(function="test.given", reads=["f"], writes=["f"], lossy=True)
    series = series_of(chain({"f": "Layer"}, {"f": "Layer"}, [step], structs=LAYER))
    with pytest.raises(MigrationError, match=r"test\.given") as caught:
        apply(payload(series.at(1), {"f": layer(1)}), plan(series, 1, 2))
    assert path in {d.path[: len(path)] for d in caught.value.diagnostics}


@function("test.backwards")
def backwards(values):
    return {"inner": values["inner"][::-1]}


def test_a_function_reads_structs_whose_own_turn_is_over():
    step = s.python(
        function="test.backwards", inverse="test.backwards", reads=["inner"], writes=["inner"]
    )

    def made(number, *inner):
        return "A", {"n": number, "inner": [*inner]}

    fields = {"n": "int", "inner": "list[A]"}
    series = series_of([doc(fields), doc(fields, 2, [step])])
    before = payload(series.at(1), made(0, made(1), made(2, made(3), made(4)))[1])
    there = apply(before, plan(series, 1, 2))
    assert conforms(series.at(2), there) == []
    after = payload(series.at(2), made(0, made(2, made(4), made(3)), made(1))[1])
    assert there.document["manifest"] == after.document["manifest"]
    back = apply(there, plan(series, 2, 1))
    assert back.document["manifest"] == before.document["manifest"]


def test_a_function_writes_structs_of_a_used_schema_in_the_version_that_payloads_have(tmp_path):
    step = s.python(
        function="test.backwards", inverse="test.backwards", reads=["inner"], writes=["inner"]
    )
    old, new = (
        doc({field: "int"}, version, steps, schema="lab.u")
        for version, field, steps in ((1, "a", None), (2, "b", [s.rename(field="a", to="b")]))
    )
    texts = {
        "u/v1": old,
        "u/v2": new,
        "h/v1": doc({"inner": "list[lab.u.A]"}, uses=["lab.u@1"]),
        "h/v2": doc({"inner": "list[lab.u.A]"}, 2, [step], uses=["lab.u@2"]),
    }
    for name, document in texts.items():
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document.to_data()))
    schema = load_schema(tmp_path / "h")
    first = schema.at(1)
    inner = [first["lab.u.A"](a=1), first["lab.u.A"](a=2)]
    there = schema.load(export(first.root(inner=inner), tmp_path / "ckpt"))
    assert [each.b for each in there.inner] == [2, 1]
