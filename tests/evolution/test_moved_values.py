"""Values that steps move: equations and constraints that name them by paths are followed, in proofs, verdicts and payloads."""

import json

import jax.numpy as jnp
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import has_errors
from neuralqx_struct.evolution.compatibility import verdict
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import series_of
from neuralqx_struct.tools.linting import lint_series
from tests.builders import every

INT = {"type": "int", "kind": "static"}
W = {"w": "float32[n]"}
PAIR = {"h": INT, "k": INT}
PARAM = {"u": "int8[p]"}
FLAT = {"A": {**PAIR, **W}}
NEST = {"A": {"c": "C", **W}, "C": PAIR}


def data(version, structs, equals=None, constraints=None, steps=None):
    made = {name: {"fields": fields} for name, fields in structs.items()}
    made |= {name: {"params": ["p"], **made[name]} for name in structs if structs[name] is PARAM}
    for name, texts in (constraints or {}).items():
        made[name]["constraints"] = [{"expr": text} for text in texts]
    found = {"language": "1", "schema": "lab.moved", "version": version, "root": "A"}
    found |= {"structs": made} | ({"dims": {"n": {"equals": equals}}} if equals else {})
    return found | ({"migrations": [{"from": version - 1, "steps": steps}]} if steps else {})


def read(*args, **options):
    return document_from_data(data(*args, **options), "test")


MOVE = {"move": {"fields": ["h", "k"], "into": "c", "struct": "C"}}
INLINE = {"inline": {"field": "c", "fields": ["h", "k"]}}
OUTER = {"rename": {"field": "c", "to": "cfg"}}
ROOT = {"rename": {"field": "h", "to": "heads"}}
INNER = {"rename": {"in": "C", "field": "h", "to": "heads"}}
STRUCT = {"rename_struct": {"struct": "C", "to": "D"}}
DEEP = {"A": {"b": "B", **W}, "B": {"c": "C"}, "C": PAIR}

#: Structs and expression of both versions, with the steps. The expression is the number of all elements of w.
CASES = {
    "outer rename": (NEST, "c.h * 2", {"A": {"cfg": "C", **W}, "C": PAIR}, "cfg.h * 2", [OUTER]),
    "inner rename": (
        NEST,
        "2 * c.h",
        {"A": {"c": "C", **W}, "C": {"heads": INT, "k": INT}},
        "2 * c.heads",
        [INNER],
    ),
    "struct": (NEST, "c.h + c.k", {"A": {"c": "D", **W}, "D": PAIR}, "c.h + c.k", [STRUCT]),
    "inline": (NEST, "c.h * c.k", FLAT, "h * k", [INLINE]),
    "move": (FLAT, "h * k", NEST, "c.h * c.k", [MOVE]),
    "all": (
        NEST,
        "c.h + 1",
        {"A": {"cfg": "D", **W}, "D": {"heads": INT, "k": INT}},
        "cfg.heads + 1",
        [INNER, STRUCT, OUTER],
    ),
    "an int of the root": (
        FLAT,
        "2 * h",
        {"A": {"heads": INT, "k": INT, **W}},
        "2 * heads",
        [ROOT],
    ),
    "an int of the root, in an inner struct": (
        {"A": {**PAIR, "b": "B"}, "B": W},
        "h + k",
        {"A": {"heads": INT, "k": INT, "b": "B"}, "B": W},
        "heads + k",
        [ROOT],
    ),
    "an int of the root, as a parameter too": (
        {"A": {**PAIR, **W, "b": "B[h]"}, "B": PARAM},
        "h + k",
        {"A": {"heads": INT, "k": INT, **W, "b": "B[heads]"}, "B": PARAM},
        "heads + k",
        [ROOT],
    ),
    "the shape of a renamed array": (
        {"A": {"c": "C", **W}, "C": {"v": "int8[p]"}},
        "2 * shape(c.v)[0]",
        {"A": {"d": "C", **W}, "C": {"u": "int8[p]"}},
        "2 * shape(d.u)[0]",
        [{"rename": {"in": "C", "field": "v", "to": "u"}}, {"rename": {"field": "c", "to": "d"}}],
    ),
    "all items": (
        {"A": {"cs": "list[C]", **W}, "C": PAIR},
        "sum(cs.h)",
        {"A": {"cs": "list[D]", **W}, "D": {"heads": INT, "k": INT}},
        "sum(cs.heads)",
        [INNER, STRUCT],
    ),
    "an item": (
        {"A": {"cs": "tuple[C, C]", **W}, "C": PAIR},
        "cs[1].h",
        {"A": {"pair": "tuple[C, C]", **W}, "C": {"heads": INT, "k": INT}},
        "pair[1].heads",
        [INNER, {"rename": {"field": "cs", "to": "pair"}}],
    ),
    "an alias": (
        NEST,
        "c.h",
        {"A": {"cfg": {"type": "C", "aliases": ["c"]}, **W}, "C": PAIR},
        "cfg.h",
        None,
    ),
    "in a struct inside": (
        DEEP,
        "b.c.h",
        {"A": {"b": "B", **W}, "B": PAIR},
        "b.h",
        [{"inline": {"in": "B", **INLINE["inline"]}}],
    ),
}


@every("name", CASES)
def test_equations_follow_the_fields_that_they_name(tmp_path, name):
    before, equation, after, other, steps = CASES[name]
    versions = [data(1, before, equation), data(2, after, other, steps=steps)]
    for each in versions:
        (tmp_path / f"v{each['version']}.json").write_text(json.dumps(each))
    schema = s.load_schema(tmp_path)
    old, new = (schema.at(version).document for version in (1, 2))
    assert prove(old, new) == []
    assert not has_errors(verdict(old, schema.series, "full" if steps else "backward"))
    path = s.example(schema.at(1).A, key=3).export(tmp_path / "old")
    loaded = schema.load(path)
    assert s.validate(path, schema=tmp_path) == []
    s.migrate(path, tmp_path / "new", schema=tmp_path)
    assert schema.load(tmp_path / "new") == loaded
    if not steps:  # an older version does not know later names
        return
    s.migrate(tmp_path / "new", tmp_path / "back", schema=tmp_path, to=1)
    assert schema.at(1).load(tmp_path / "back") == schema.at(1).load(path)


SWAP = [
    {"rename": {"in": "C", "field": "h", "to": "x"}},
    {"rename": {"in": "C", "field": "k", "to": "h"}},
    {"rename": {"in": "C", "field": "x", "to": "k"}},
]
ANEW = [
    {"remove": {"in": "C", "field": "h", "undo_default": 0}},
    {"add": {"in": "C", "field": "h", "default": 0}},
]
WRONG = {
    "the other field": (NEST, "c.h", NEST, "c.h", SWAP),
    "the other int of the root": (
        FLAT,
        "2 * h",
        FLAT,
        "2 * h",
        [{"rename": {k: v for k, v in each["rename"].items() if k != "in"}} for each in SWAP],
    ),
    "another expression": (NEST, "c.h", FLAT, "k", [INLINE]),
    "a field that is added anew": (NEST, "c.h", NEST, "c.h", ANEW),
    "a name that is a size already": (
        {"A": {"c": "C", "v": "int8[h]", **W}, "C": PAIR},
        "c.h",
        {"A": {**PAIR, "v": "int8[h]", **W}},
        "h",
        [INLINE],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_values_are_not_proved(name):
    before, equation, after, other, steps = WRONG[name]
    versions = read(1, before, equation), read(2, after, other, steps=steps)
    assert "NQX305" in {d.code for d in lint_series(series_of(versions))}


INSIDE = {"C": ["h <= k"]}
CONSTRAINTS = {
    "moved": (FLAT, {"A": ["h <= k"]}, NEST, {"A": ["c.h <= c.k"]}, [MOVE]),
    "inlined": (NEST, {"A": ["c.h <= c.k"]}, FLAT, {"A": ["h <= k"]}, [INLINE]),
    "moved into the struct": (FLAT, {"A": ["h <= k"]}, NEST, INSIDE, [MOVE]),
    "taken out of the struct": (NEST, INSIDE, FLAT, {"A": ["h <= k"]}, [INLINE]),
    "said where it holds": (NEST, INSIDE, NEST, {"A": ["c.h <= c.k"], **INSIDE}, []),
    "renamed": (
        NEST,
        {"A": ["c.h <= c.k"]},
        {"A": {"cfg": "D", **W}, "D": {"heads": INT, "k": INT}},
        {"A": ["cfg.heads <= cfg.k"]},
        [INNER, STRUCT, OUTER],
    ),
    "of each item": (
        {"A": {"cs": "list[C]", **W}, "C": PAIR},
        {"A": ["all(cs.h <= cs.k)"]},
        {"A": {"cs": "list[C]", **W}, "C": {"d": "D", "k": INT}, "D": {"h": INT}},
        {"A": ["all(cs.d.h <= cs.k)"]},
        [{"move": {"in": "C", "fields": ["h"], "into": "d", "struct": "D"}}],
    ),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints_follow_the_fields_that_they_name(name):
    before, old, after, new, steps = CONSTRAINTS[name]
    series = series_of(
        [read(1, before, constraints=old), read(2, after, constraints=new, steps=steps)]
    )
    assert not has_errors(verdict(series.at(1), series, "full"))
    assert not {d.code for d in lint_series(series)} & {"NQX270", "NQX271", "NQX305"}


TIGHTER = {
    "another bound": (FLAT, {"A": ["h <= k"]}, NEST, {"A": ["c.h < c.k"]}, [MOVE]),
    "of the other field": (NEST, {"A": ["c.h > 1"]}, FLAT, {"A": ["k > 1"]}, [INLINE]),
    "of a struct that may be null": (
        {"A": {"c": "C | null", "h": INT, "k": INT}, "C": PAIR},
        INSIDE,
        {"A": {"c": "C | null", "h": INT, "k": INT}, "C": PAIR},
        {"A": ["h <= k"], **INSIDE},
        [],
    ),
}


@pytest.mark.parametrize("name", TIGHTER)
def test_other_constraints_are_changes(name):
    before, old, after, new, steps = TIGHTER[name]
    series = series_of(
        [read(1, before, constraints=old), read(2, after, constraints=new, steps=steps)]
    )
    assert "NQX270" in {d.code for d in verdict(series.at(1), series, "backward")}


STALE = {
    "moved": (NEST, ["h <= k"], None, ["did you mean 'c.h'?", "did you mean 'c.k'?"]),
    "inlined": (FLAT, ["c.h <= c.k"], None, ["did you mean 'h', 'k'?"]),
    "renamed": ({"A": {"cfg": "C", **W}, "C": PAIR}, ["c.h <= c.k"], None, ["did you mean 'cfg.h', 'cfg.k'?"]),
    "equation of a moved field": (NEST, [], "h", ["did you mean 'c.h'?"]),
    "equation of an inlined field": (FLAT, [], "c.h", ["did you mean 'h'?"]),
}  # fmt: skip


@pytest.mark.parametrize("name", STALE)
def test_expressions_that_name_the_old_places_have_a_fix(name):
    structs, constraints, equals, hints = STALE[name]
    found = lint_series(series_of([read(1, structs, equals, {"A": constraints})]))
    assert [d.hint for d in found if d.severity == "error"] == hints


def test_a_step_sees_sizes_of_equations_after_a_rename(tmp_path):
    fields = {"cfg": "C", "v": "float32[n]"}
    add = {"add": {"field": "v", "default": 0}}
    versions = [data(1, NEST, "c.h"), data(2, {"A": {**fields, **W}, "C": PAIR}, "cfg.h")]
    versions[1]["migrations"] = [{"from": 1, "steps": [OUTER, add]}]
    for each in versions:
        (tmp_path / f"v{each['version']}.json").write_text(json.dumps(each))
    schema = s.load_schema(tmp_path)
    one = schema.at(1)
    path = one.A(c=one.C(h=3, k=1), w=jnp.ones(3)).export(tmp_path / "old")
    assert schema.load(path).v.shape == (3,)
