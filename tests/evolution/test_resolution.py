"""One resolution order for all ways to read older data: classes of schema files, of Python with and without a schema.

Each row is a change of one field; the columns are how the class is declared and how the payload reaches it.
"""

import json
import logging
import re
import types

import numpy as np
import pytest
from jaxtyping import Array, Float32, Float64, Int8

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct import references as registry
from neuralqx_struct.documents.bound import series_of_class
from neuralqx_struct.evolution.migrations import resolve
from neuralqx_struct.manifest.payload import Payload
from neuralqx_struct.schema import uses
from tests.builders import every, refused

TYPES = {
    "int": int,
    "str": str,
    "float32[n]": Float32[Array, "n"],
    "float64[n]": Float64[Array, "n"],
    "int8[n]": Int8[Array, "n"],
}
VALUES = {
    "int": 3,
    "str": "x",
    "float32[n]": np.ones(2, "f4"),
    "float64[n]": np.full(2, 0.1),
    "int8[n]": np.ones(2, "i1"),
}


@pytest.fixture(autouse=True)
def _apart(monkeypatch):
    monkeypatch.setattr("neuralqx_struct.references._BOUND", {})
    monkeypatch.setattr(uses, "_LOADED", {})


def field(declared):
    """(type, options) of a declaration as the rows have it: a type, or a dict."""
    given = dict(declared) if isinstance(declared, dict) else {"type": declared}
    return given.pop("type"), given


def from_file(version, fields, steps):
    data = {"language": "1", "schema": "lab.row", "version": version, "root": "Row"}
    data["structs"] = {
        "Row": {
            "fields": {
                name: d if isinstance(d, dict) else {"type": d} for name, d in fields.items()
            }
        }
    }
    if steps is not None:
        data["migrations"] = [
            {
                "from": 1,
                "steps": [{s.steps.step_name(t): t.model_dump(exclude_unset=True)} for t in steps],
            }
        ]
    document = s.load_schema(yaml_of(data)).document
    return s.load_schema(yaml_of(data)).root if document else None


def yaml_of(data):
    return json.dumps(data, indent=1)


def in_python(version, fields, steps, *, schema):
    def body(namespace):
        namespace["__module__"], namespace["__annotations__"] = __name__, {}
        for name, declared in fields.items():
            kind, options = field(declared)
            namespace["__annotations__"][name] = TYPES[kind]
            namespace[name] = s.field(**options, kw_only=True)

    keywords = {
        "schema": "lab.row",
        "version": version,
        "migrations": [s.steps.migration(1, steps)] if steps else None,
    }
    cls = types.new_class(
        "Row", (s.Struct,), {k: v for k, v in keywords.items() if schema and v is not None}, body
    )
    if not schema:
        registry.alias_class(f"{__name__}:Row", cls)
    return cls


DECLARED = {
    "file": from_file,
    "python with schema": lambda *given: in_python(*given, schema=True),
    "plain python": lambda *given: in_python(*given, schema=False),
}


def by_load(old, new, tmp_path, **how):
    return new.load(old.export(tmp_path / "ckpt", overwrite=True), as_numpy=True, **how)


def by_state_dict(old, new, tmp_path, **how):
    return new.from_state_dict(old.to_state_dict(), as_numpy=True, **how)


def by_migrate(old, new, tmp_path, *, report=None, unknown="error"):
    series = series_of_class(new)
    payload = bundle.read(old.export(tmp_path / "ckpt", overwrite=True))
    if (
        unknown != "error"
    ):  # a bundle is written of what the schemas say: leaving out has to be a step
        payload = resolve(payload, series, unknown=unknown, report=report)
        assert isinstance(payload, Payload)
        return new.from_state_dict(
            {**payload.document, "array_data": dict(payload.arrays)}, as_numpy=True
        )
    done = s.migrate(tmp_path / "ckpt", tmp_path / "new", schema=series)
    if report is not None:
        report += done.report
    return new.load(tmp_path / "new", as_numpy=True)


WAYS = {"load": by_load, "from_state_dict": by_state_dict, "migrate": by_migrate}
PAIRS = [
    (how, way) for how in DECLARED for way in WAYS if (how, way) != ("plain python", "migrate")
]

# old fields, new fields, steps, unknown=; then the field that is looked at, its value, and the codes of the report.
READ = {
    "the same": ({"a": "int"}, {"a": "int"}, None, "error", "a", 3, []),
    "default": (
        {"a": "int"},
        {"a": "int", "b": {"type": "int", "default": 7}},
        None,
        "error",
        "b",
        7,
        ["NQX425"],
    ),
    "alias": ({"a": "int"}, {"b": {"type": "int", "aliases": ["a"]}}, None, "error", "b", 3, []),
    "alias and default": (
        {"a": "int"},
        {"b": {"type": "int", "default": 7, "aliases": ["a"]}},
        None,
        "error",
        "b",
        3,
        [],
    ),
    "dropped": ({"a": "int", "b": "str"}, {"a": "int"}, None, "drop", "a", 3, ["NQX415"]),
    "dropped with a warning": (
        {"a": "int", "b": "str"},
        {"a": "int"},
        None,
        "warn",
        "a",
        3,
        ["NQX415"],
    ),
}
VERSIONED = {
    "promotion": (
        {"w": "float32[n]"},
        {"w": "float64[n]"},
        None,
        "error",
        "w",
        np.ones(2),
        ["NQX425"],
    ),
    "step": ({"a": "int"}, {"b": "int"}, [s.steps.rename(field="a", to="b")], "error", "b", 3, []),
    "added by a step": (
        {"a": "int"},
        {"a": "int", "b": {"type": "int", "default": 7}},
        [s.steps.add(field="b", default=8)],
        "error",
        "b",
        8,
        ["NQX425"],
    ),
    "cast by a step": (
        {"w": "float32[n]"},
        {"w": "int8[n]"},
        [s.steps.cast(field="w", dtype="int8")],
        "error",
        "w",
        np.ones(2, "i1"),
        ["NQX425"],
    ),
    "removed by a step": (
        {"a": "int", "b": "str"},
        {"a": "int"},
        [s.steps.remove(field="b", undo_default="")],
        "error",
        "a",
        3,
        ["NQX425"],
    ),
}
ROWS = [
    (name, row, pair)
    for name, row in (READ | VERSIONED).items()
    for pair in PAIRS
    if name in READ or pair[0] != "plain python"
]


def make(how, fields, version=1, steps=None):
    return DECLARED[how](version, fields, steps)


def instance(cls, fields):
    return cls(**{name: VALUES[field(declared)[0]] for name, declared in fields.items()})


@pytest.mark.parametrize(
    ("name", "row", "pair"), ROWS, ids=[f"{n}, {p[0]}, {p[1]}" for n, _, p in ROWS]
)
def test_what_is_read_and_what_is_told(name, row, pair, tmp_path, caplog):
    (how, way), (old, new, steps, unknown, looked_at, value, codes) = pair, row
    before = instance(make(how, old), old)
    after = make(how, new, 2, steps)
    report = []
    with caplog.at_level(logging.INFO, logger="neuralqx_struct"):
        loaded = WAYS[way](before, after, tmp_path, report=report, unknown=unknown)
    assert type(loaded) is after and np.array_equal(getattr(loaded, looked_at), value)
    assert [d.code for d in report] == codes
    assert all(d.path.startswith("$.") for d in report)
    if way != "migrate":
        level = logging.WARNING if unknown == "warn" else logging.INFO
        told = [r for r in caplog.records if r.name == "neuralqx_struct"]
        assert [(r.levelno, r.getMessage()) for r in told] == [(level, str(d)) for d in report]


# What does not fit is one error with everything: old fields, new fields, and for each path what its line says.
REFUSED = {
    "removed": ({"a": "int", "b": "str"}, {"a": "int"}, {"b": ["b", "remove|drop"]}),
    "added without default": (
        {"a": "int"},
        {"a": "int", "b": "str"},
        {"b": ["b|stored value", "default|add"]},
    ),
    "renamed": (
        {"kernel": "int"},
        {"kernels": "int"},
        {"kernel": ["kernel", "renames?"], "kernels": ["kernels|stored value", "rename|aliases"]},
    ),
    "all at once": (
        {"a": "int", "weight": "float32[n]", "gone": "str"},
        {"a": "int", "weights": "float32[n]", "n_new": "int"},
        {
            "weight": ["weight", "rename"],
            "weights": ["", "rename|aliases"],
            "gone": ["gone", "remove|drop"],
            "n_new": ["", "add|default"],
        },
    ),
}
REFUSALS = [(n, r, p) for n, r in REFUSED.items() for p in PAIRS]


@every(("name", "row", "pair"), REFUSALS)
def test_what_does_not_fit_is_told_at_once(name, row, pair, tmp_path):
    (how, way), (old, new, expected) = pair, row
    before = instance(make(how, old), old)
    after = make(how, new, 2)
    with pytest.raises(s.SerializationError) as caught:
        WAYS[way](before, after, tmp_path)
    found = {d.path.rpartition(".")[2]: d for d in caught.value.diagnostics}
    assert found.keys() == expected.keys() and len(caught.value.diagnostics) == len(expected)
    for where, (message, hint) in expected.items():
        assert "expected" in found[where].message and "got" in found[where].message
        assert re.search(message, found[where].message), found[where]
        assert re.search(hint, found[where].hint), found[where]


@pytest.mark.parametrize("how", ["file", "python with schema"])
@pytest.mark.parametrize("way", WAYS)
def test_types_that_do_not_fit(how, way, tmp_path):
    before = instance(make(how, {"w": "float64[n]", "a": "int"}), {"w": "float64[n]", "a": "int"})
    after = make(how, {"w": "float32[n]", "a": "str"}, 2)
    with pytest.raises(s.MigrationError) as caught:
        WAYS[way](before, after, tmp_path)
    told = {d.path.rpartition(".")[2]: str(d) for d in caught.value.diagnostics}
    assert told.keys() == {"w", "a"}
    assert (
        "expected float32[n], got float64[n]" in told["w"]
        and "cast: {field: w, dtype: float32}" in told["w"]
    )
    assert "expected str, got int" in told["a"]
    assert not (tmp_path / "new").exists()


def test_a_plain_class_that_was_moved_and_renamed(tmp_path):
    old = in_python(1, {"a": "int", "inner": "int"}, None, schema=False)
    path = instance(old, {"a": "int", "inner": "int"}).export(tmp_path / "ckpt")
    registry._ALIASES.pop(f"{__name__}:Row")
    registry._CLASSES.pop(f"{__name__}:Row")
    new = types.new_class(
        "Renamed",
        (s.Struct,),
        {},
        lambda n: n.update(
            __annotations__={"b": int, "inner": int},
            __module__=__name__,
            b=s.field(aliases=["a"], kw_only=True),
        ),
    )
    with refused(s.UntrustedError, "NQX501", f's.alias_class("{__name__}:Row", Row)'):
        new.load(path)
    registry.alias_class(f"{__name__}:Row", new)
    assert new.load(path) == new(b=3, inner=3) and s.load(path) == new(b=3, inner=3)


@pytest.mark.parametrize("how", DECLARED)
def test_values_for_what_was_not_saved(how, tmp_path):
    before = instance(make(how, {"a": "int"}), {"a": "int"})
    if how == "plain python":
        after = make(how, {"a": "int", "b": "int"}, 2)
        assert by_load(before, after, tmp_path, fill={"b": 9}).b == 9
        return
    after = make(
        how, {"a": "int", "b": "int"}, 2
    )  # a stored field of a schema gets its value from a step, not by hand
    with refused(s.MigrationError, "NQX414"):
        by_load(before, after, tmp_path, fill={"b": 9})


EDITED = '{{"language": "1", "schema": "lab.edited", "version": 1, "root": "A", "structs": {{"A": {{"fields": {fields}}}}}}}'


def edited(**fields):
    return s.load_schema(EDITED.format(fields=json.dumps(fields, indent=1)) + "\n")


def test_a_version_that_was_edited_is_refused_with_its_differences(tmp_path):
    old = edited(kernel="float32[n]", bias="float32[n]", step="int")
    value = old.root(kernel=np.ones(2, "f4"), bias=np.ones(2, "f4"), step=1)
    path = value.export(tmp_path / "c")
    new = edited(kernels="float32[n]", bias="float64[n]", step={"type": "int", "doc": "Steps."})
    messages = []
    for read in (lambda: new.load(path), lambda: new.root.load(path)):
        with pytest.raises(s.MigrationError) as caught:
            read()
        (found,) = caught.value.diagnostics
        messages.append((found.code, found.message, found.path, found.hint))
    (found,) = s.validate(path, new)
    messages.append((found.code, found.message, found.path, found.hint))
    assert messages == [messages[0]] * 3
    lines = messages[0][1].split("\n")
    assert messages[0][0] == "NQX405" and len(lines) == 4
    assert lines[1] == "the given schema declares something else under the same version number"
    assert lines[2].startswith("$.structs.A.fields.kernels: field kernel was removed and kernels")
    assert lines[3].startswith("$.structs.A.fields.bias: dtype float32 became float64")


EDITS = {
    "a type and its default": (
        {"c": {"type": "int", "default": 1}},
        {"c": {"type": "str", "default": "1"}},
        ["the type int became str", "the default changed from 1 to '1'"],
    ),
    "null and the default": (
        {"c": {"type": "float | null", "default": None}},
        {"c": "float"},
        ["null is no longer allowed: float | null became float", "the default was removed"],
    ),
    "a dtype and a shape": (
        {"c": "float32[2]"},
        {"c": "int8[2, 2]"},
        ["shape [2] became [2, 2]", "dtype float32 became int8, which does not hold all its values"],
    ),
    "a name of a size": ({"c": "int8[n]"}, {"c": "int8[m]"}, ["axis 0 is m instead of n"]),
    "a field": ({"c": "int", "d": "int"}, {"c": "int"}, ["field d, which has no default, was removed"]),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_all_differences_of_an_edited_field_are_listed(name, tmp_path):
    before, after, expected = EDITS[name]
    old, new = edited(**before), edited(**after)
    path = s.example(old.root, key=0).export(tmp_path / "c")
    with pytest.raises(s.MigrationError) as caught:
        new.load(path)
    lines = caught.value.diagnostics[0].message.split("\n")[2:]
    assert sorted(line.partition(": ")[2] for line in lines) == sorted(expected)
