"""The table of a layout: what it says of names without a file agrees with the names of files."""

import itertools

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import SchemaError, SerializationError
from neuralqx_struct.layouts import read_layout
from neuralqx_struct.layouts.coverage import claim_findings
from neuralqx_struct.layouts.table import ArrayEntry, Table
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.text.loader import dump_yaml, read_text

HEAD = {"language": "1", "layout": "x", "of": "lab.net@1"}
STRUCTS = {
    "Dense": {"w": "float32[i, o]", "b": "float32[o] | null"},
    "Tree": {"w": "float32[n]", "left": "Tree | null", "right": "Tree | null"},
    "Block": {"dense": "Dense", "more": "list[Dense]", "by_name": "dict[str, Dense]"},
    "Net": {
        "blocks": "list[Block]",
        "deep": "Dense[][m]",
        "pair": "tuple[Dense, Dense]",
        "tree": "Tree | null",
        "experts": "float32[e, d]",
    },
}


def table(rules, structs=None):
    declared = {name: {"fields": fields} for name, fields in (structs or STRUCTS).items()}
    schema = {"language": "1", "schema": "lab.net", "version": 1, "root": "Net"}
    series = load_series(dump_yaml({**schema, "structs": declared}))
    layout, _ = read_layout({**HEAD, "structs": rules}, series)
    return Table(series.head, layout), s.Schema(series, 1)


def dense():
    return {"w": np.ones((2, 3), "float32"), "b": None}


def net(schema):
    return s.from_dict(
        {
            "blocks": [
                {"dense": dense(), "more": [dense()], "by_name": {"a": dense(), "7": dense()}},
                {"dense": dense(), "more": [], "by_name": {"b": dense()}},
            ],
            "deep": {"w": np.ones((2, 2, 3), "float32"), "b": None},
            "pair": (dense(), dense()),
            "tree": {
                "w": np.ones(1, "float32"),
                "left": None,
                "right": {"w": np.ones(1, "float32"), "left": None, "right": None},
            },
            "experts": np.ones((3, 4), "float32"),
        },
        schema,
    )


RULES = {
    "Net": {
        "blocks": "h.{i}",
        "deep": "d.{i}.x",
        "pair": "p",
        "experts": {"name": "100%.{i}.e", "merge": "stack"},
    },
    "Block": {"by_name": "of.{key}.in", "more": "", "dense": "/%s"},
}


def test_every_name_of_a_file_has_a_pattern_of_the_table():
    made, schema = table({**RULES, "Block": {**RULES["Block"], "dense": "dense"}})
    names = [*schema.to_layout(net(schema), made.layout)]
    keys = ["0", "1", "2", "7", "a", "b"]
    found = dict.fromkeys(names, 0)
    for entry in made.entries:
        for pattern in entry.names if isinstance(entry, ArrayEntry) else ():
            slots = entry.row.slots + (entry.span is not None)
            filled = {pattern.name("", each) for each in itertools.product(keys, repeat=slots)}
            found |= {name: found[name] + 1 for name in filled & found.keys()}
    assert {*found.values()} == {1}
    assert {"h.0.of.a.in.w", "h.0.0.w", "d.1.x.w", "p.0.w", "tree.right.w", "100%.2.e"} <= {*names}


def test_a_struct_that_holds_itself_is_entered_as_deep_as_a_file_has_it():
    _, schema = table(RULES)
    value = {"w": np.ones(1, "float32"), "left": None, "right": None}
    for _ in range(40):
        value = {"w": np.ones(1, "float32"), "left": value, "right": None}
    model = net(schema).replace(tree=s.from_dict(value, schema.Tree))
    rules = {**RULES, "Block": {}}
    arrays = dict(schema.to_layout(model, {**HEAD, "structs": rules}))
    assert f"tree.{'left.' * 40}w" in arrays
    assert schema.from_layout(arrays, {**HEAD, "structs": rules}, as_numpy=True) == model


@pytest.mark.parametrize("separator", [".", "/", "%"])
def test_names_behind_numbers_and_keys_may_begin_with_the_separator(separator):
    structs = {
        "Item": {"w": "float32[n]", "more": "float32[k, n]"},
        "Net": {"a": "list[Item]", "b": "dict[str, Item]", "c": "Item[][m]"},
    }
    rules = {
        "Item": {"more": {"name": "m/{i}/e", "merge": "stack"}},
        "Net": {"a": "h/{i}/x", "b": "k/{key}/x", "c": "s/{i}/x"},
    }
    text = dump_yaml(rules).replace("/", separator)
    _, schema = table({}, structs)
    layout = {**HEAD, "separator": separator, "structs": read_text(text).data}
    item = {"w": np.ones(2, "float32"), "more": np.ones((3, 2), "float32")}
    stacked = {"w": np.ones((2, 2), "float32"), "more": np.ones((2, 3, 2), "float32")}
    model = s.from_dict({"a": [item, item], "b": {"q": item}, "c": stacked}, schema)
    arrays = dict(schema.to_layout(model, layout))
    assert {name.replace(separator, "/") for name in arrays} >= {
        "h/1/x/m/2/e",
        "k/q/x/w",
        "s/0/x/w",
    }
    assert schema.from_layout(arrays, layout, as_numpy=True) == model


CLASHES = {
    "two fields": ({"Net": {"a": "x", "b": "x"}}, {"a": "float32[n]", "b": "float32[n]"}),
    "a list below another name": (
        {"Net": {"a": "", "b": "h.{i}"}, "Inner": {"held": "h.{i}"}},
        {"a": "Inner", "b": "list[float32[n]]"},
    ),
    "a list beside a dict": (
        {"Net": {"a": "h.{i}", "b": "h.{key}"}},
        {"a": "list[float32[n]]", "b": "dict[str, float32[n]]"},
    ),
}


@pytest.mark.parametrize("case", CLASHES)
def test_patterns_that_are_equal_belong_to_one_field(case):
    rules, fields = CLASHES[case]
    structs = {"Inner": {"held": "list[float32[n]]"}, "Net": fields}
    made, _ = table(rules, structs)
    (found,) = claim_findings(made)
    assert (found.code, found.severity) == ("NQX703", "error")
    assert found.path.startswith("$.structs.")


def test_options_of_a_union_may_have_the_same_names():
    structs = {
        "A": {"w": "float32[n]"},
        "B": {"w": "float32[n, m]"},
        "Net": {"held": "A | B", "other": "float32[n]"},
    }
    assert not [*claim_findings(table({"Net": {"held": ""}}, structs)[0])]
    assert [*claim_findings(table({"Net": {"held": "", "other": "w"}}, structs)[0])]


def test_numbers_in_keys_of_dicts_are_no_slots():
    """A key may be any text, also that of a mark."""
    structs = {"Item": {"w": "list[float32[n]]"}, "Net": {"held": "dict[str, Item]"}}
    made, schema = table({"Item": {"w": "w.{i}"}}, structs)
    held = {key: {"w": [np.ones(2, "float32")]} for key in ("{i}", "%s", "{key}", "a")}
    model = s.from_dict({"held": held}, schema)
    arrays = dict(schema.to_layout(model, made.layout))
    assert [*arrays] == [f"held.{key}.w.0" for key in held]
    assert schema.from_layout(arrays, made.layout) == model
    with pytest.raises((SchemaError, SerializationError)):
        schema.from_layout(arrays | {"held.a.w.2": np.ones(2, "float32")}, made.layout)
