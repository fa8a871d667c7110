"""Samples of payloads: valid ones, the smallest first, with every option and every limit among the first 25."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from neuralqx_struct.errors import has_errors
from neuralqx_struct.schema.conformance import conform_node
from neuralqx_struct.schema.patterns import matches, texts_of
from neuralqx_struct.schema.samples import samples_of
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.types.text import plain_value
from tests.builders import bounded, cases, doc, every

FIRST = range(25)


def tree(sample):
    return sample.payload.document["manifest"]


def fields(document, name, near=None):
    """The nodes of one field of the root in the first samples."""
    return [tree(samples_of(document, near).at(n))["fields"][name] for n in FIRST]


def lengths(nodes):
    return [len(node["items"]) for node in nodes]


SHIPPED = ["diffusion_unet", "gpt2", "lattice_gauge", "mc_state", "normalising_flow"]
SHIPPED += ["ppo_agent", "resnet", "transformer", "vmc_state"]


@every("name", SHIPPED)
def test_every_sample_of_a_shipped_schema_is_valid(name):
    for document in load_series(f"schemas/{name}").documents.values():
        for number in FIRST[: cases(25)]:
            sample = samples_of(document).at(number)
            assert sample.payload is not None, (number, sample.reason)
            assert not has_errors(conform_node(document, tree(sample), sample.payload.arrays))


def test_samples_need_neither_jax_nor_numpy_until_an_array_is_read():
    text = """
import sys
from neuralqx_struct.schema.samples import samples_of
from neuralqx_struct.schema.series import load_series
document = load_series("schemas/vmc_state").head
print([samples_of(document).at(number).payload.document for number in range(25)])
assert {"jax", "numpy"}.isdisjoint(sys.modules)
"""
    run = [sys.executable, "-c", text]
    made = [
        subprocess.run(run, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    ]  # fmt: skip
    assert made[0].stdout == made[1].stdout


OPTIONS = {
    "mode": ("E", [*"abcdefgh"]),
    "choice": ({"type": "int", "choices": [4, 7, 9]}, [4, 7, 9]),
    "text": ({"type": "str", "choices": ["x", "y"]}, ["x", "y"]),
    "literal": ('literal["x", 2, true]', ["x", 2, True]),
    "flag": ("bool", [False, True]),
    "maybe": ({"type": "int | null", "choices": [3]}, [3, None]),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_drawn(name):
    declared, options = OPTIONS[name]
    document = doc({name: declared}, enums={"E": [*"abcdefgh"]})
    assert {repr(each) for each in fields(document, name)} == {repr(each) for each in options}


def test_every_branch_of_a_union_is_drawn():
    structs = {"B": {"x": "int"}, "C": {"y": "int"}}
    document = doc({"a": "B | C | null", "z": "list[B | C]"}, structs=structs)
    found = Counter(node and node["type"] for node in fields(document, "a"))
    assert found.keys() == {None, "lab.a@1:B", "lab.a@1:C"}
    assert {node["type"] for items in fields(document, "z") for node in items["items"]} == {
        "lab.a@1:B",
        "lab.a@1:C",
    }


#: Fields, and numbers that are drawn.
BOUNDS = {
    "bounds": ({"type": "int", "ge": -2, "le": 900}, {-2, -1, 0, 1, 899, 900}),
    "open bounds": ({"type": "int", "gt": -2, "lt": 900}, {-1, 0, 1, 899}),
    "far from zero": ({"type": "int", "ge": 50, "le": 900}, {50, 51, 899, 900}),
    "multiples": ({"type": "int", "ge": 4, "le": 31, "multiple_of": 5}, {5, 30}),
    "no bounds": ("int", {-1, 0, 1}),
    "floats": ({"type": "float", "ge": 0.5, "le": 2}, {0.5, 1.0, 2.0}),
    "steps": ({"type": "float", "multiple_of": 0.5, "ge": 1, "le": 3}, {1.0, 3.0}),
    "a default": ({"type": "int", "ge": 0, "default": 400}, {0, 1, 400}),
}


@every("name", BOUNDS)
def test_limits_of_numbers_are_drawn(name):
    declared, wanted = BOUNDS[name]
    assert {*fields(doc({"x": declared}), "x")} >= wanted


def test_limits_of_lengths_are_drawn():
    document = doc(
        {
            "text": {"type": "str | null", "max_length": 40},
            "least": {"type": "str", "min_length": 7},
            "items": {"type": "list[int]", "min_length": 2, "max_length": 9},
            "table": "dict[str, int]",
            "row": "tuple[int, ...]",
            "raw": {"type": "bytes", "max_length": 3},
        }
    )
    assert {len(each) for each in fields(document, "text") if each is not None} >= {0, 1, 40}
    assert {*map(len, fields(document, "least"))} >= {7, 8}
    assert {*lengths(fields(document, "items"))} >= {2, 3, 9}
    assert {*lengths(fields(document, "table"))} >= {0, 1, 2}
    assert {*lengths(fields(document, "row"))} >= {0, 1, 2}


def test_the_length_of_a_field_is_that_of_the_outermost_list():
    nested = fields(doc({"x": {"type": "list[list[int]]", "max_length": 1}}), "x")
    assert {*lengths(nested)} == {0, 1}
    assert max(len(inner["items"]) for outer in nested for inner in outer["items"]) > 1


def test_limits_of_dims_and_sizes_of_0_and_1_are_drawn():
    document = doc({"x": "int8[n]", "y": "int8[m]"}, dims={"n": {"min": 3, "max": 500}})
    assert {node["shape"][0] for node in fields(document, "x")} >= {3, 4, 499, 500}
    assert {node["shape"][0] for node in fields(document, "y")} >= {0, 1, 2}


def test_limits_of_the_other_version_are_drawn():
    old = doc({"k": "int", "r": "float", "t": "str", "l": "list[int]", "w": "int8[n]", "c": "int"})
    limited = {
        "k": {"type": "int", "lt": 1000},
        "r": {"type": "float", "ge": -70},
        "t": {"type": "str", "max_length": 30},
        "l": {"type": "list[int]", "max_length": 8},
        "w": "int8[n]",
        "c": "int",
    }
    raw = {"A": {"fields": limited, "constraints": [{"expr": "c < 77"}]}}
    new = doc({}, 2, raw=raw, dims={"n": {"min": 5, "max": 600}})
    assert {*fields(old, "k", new)} >= {999, 1000, 1001}
    assert {*fields(old, "r", new)} >= {-70.0, -70.25, -69.75}
    assert {*map(len, fields(old, "t", new))} >= {0}
    assert {node["shape"][0] for node in fields(old, "w", new)} >= {4, 5, 600, 601}
    assert {*fields(old, "c", new)} >= {76, 77, 78}


def test_versions_with_equal_limits_share_their_samples():
    old, new = doc({"k": {"type": "int", "ge": 3}}), doc({"k": {"type": "int", "ge": 3}}, 2)
    assert samples_of(old, new) is samples_of(old)
    tighter = doc({"k": {"type": "int", "ge": 4}}, 2)
    assert samples_of(old, tighter) is samples_of(old, tighter) is not samples_of(old)


def test_the_first_samples_are_the_smallest():
    document = doc(
        {
            "w": "float32[n, m]",
            "l": "list[float32[n]]",
            "d": "dict[str, int]",
            "o": "float32[n] | null",
            "i": "int",
            "j": {"type": "int", "ge": 4},
            "t": "str",
        }
    )
    for number in range(3):
        found = tree(samples_of(document).at(number))["fields"]
        assert found["w"]["shape"] == [number, number]
        assert lengths([found["l"], found["d"]]) == [number, number]
        assert (found["o"] is None) == (number == 0)
        assert (found["i"], found["j"], len(found["t"])) == (number, 4, number)


def test_the_smallest_that_constraints_allow():
    constraints = [{"expr": "a < b and 0 < c"}, {"expr": "n > 1"}]
    declared = {"a": "int", "b": "int", "c": "int", "w": "int8[n]"}
    document = doc({}, raw={"A": {"fields": declared, "constraints": constraints}})
    found = tree(samples_of(document).at(0))["fields"]
    assert found["c"] == 1 and found["w"]["shape"] == [2] and -2 <= found["a"] < found["b"] <= 2


#: Fields and constraints of a struct.
CONSTRAINTS = {
    "an order": ({"a": "int", "b": "int", "c": "float"}, ["a < b", "b <= c"]),
    "a multiple": ({"a": {"type": "int", "ge": 1}, "b": {"type": "int", "ge": 1}}, ["a % b == 0", "a > b"]),
    "equalities": ({"a": "int", "b": "int", "l": "list[int]"}, ["a == b + 1", "all(l == a)"]),
    "lengths": ({"n": "int", "l": "list[int]", "w": "float32[k]"}, ["len(l) == n", "len(w) == 2 * n", "n >= 0"]),
    "numbers of arrays": ({"w": "float32[n]", "v": "int16[n]"}, ["all(0 < w) and all(w <= 0.5)", "all(v >= 300)"]),
    "a sum": ({"w": "float32[n]"}, ["sum(w) == 1", "all(w >= 0)"]),
    "a derived field": ({"a": "int", "b": {"type": "int", "derived": "2 * a", "kind": "static"}}, ["b > 100"]),
    "an optional field": ({"a": "int | null", "b": "int"}, ["a == None or a > b"]),
    "a magnitude": ({"w": "complex64[n]", "x": "float"}, ["all(abs(w) <= 1)", "abs(x) < 0.01"]),
    "a size": ({"w": "float32[n]", "k": "int"}, ["n >= 2 and k == n"]),
}  # fmt: skip


@every("name", CONSTRAINTS)
def test_samples_keep_constraints(name):
    declared, expressions = CONSTRAINTS[name]
    struct = {"fields": declared, "constraints": [{"expr": each} for each in expressions]}
    inner = {"A": {"fields": {"x": "B", "y": "list[B]"}}, "B": struct}
    for raw in ({"A": struct}, inner):
        document = doc({}, raw=raw)
        made = [samples_of(document).at(number) for number in FIRST]
        assert [each.reason for each in made if each.payload is None] == []
        for each in made:
            assert conform_node(document, tree(each), each.payload.arrays) == []


def test_constraints_of_stacked_structs_are_kept():
    raw = {"B": {"fields": {"w": "float32[k]"}, "constraints": [{"expr": "all(w > 0)"}]}}
    document = doc({"s": "B[][n]"}, raw=raw)
    for number in FIRST:
        assert samples_of(document).at(number).payload is not None


@every(
    "dtype", ["bool", "int8", "uint8", "float32", "bfloat16", "float8_e4m3fn", "complex64", "int4"]
)
def test_arrays_have_small_numbers(dtype):
    document = doc({"w": f"{dtype}[n]"})
    samples = samples_of(document)
    seen = set()
    for number in FIRST:
        (array,) = samples.at(number).payload.arrays.values()
        assert str(array.dtype) == dtype
        assert np.abs(array.astype(complex)).max(initial=0) <= 3
        seen |= {*array.astype(complex).ravel().tolist()}
    assert {0, 1} <= seen
    assert dtype in ("bool", "uint8") or min(each.real for each in seen) < 0


def test_arrays_that_constraints_read_have_the_limits_of_their_dtype():
    raw = {"A": {"fields": {"w": "int16[n]"}, "constraints": [{"expr": "sum(w) != 5"}]}}
    document = doc({}, raw=raw)
    samples = samples_of(document)
    seen = {each for n in FIRST for each in samples.at(n).payload.arrays["0"].ravel().tolist()}
    assert seen >= {-(2**15), 2**15 - 1, 0}


def test_large_arrays_take_no_memory():
    document = doc({"w": "float32[n, 1000]"}, dims={"n": {"min": 4000}})
    array = samples_of(document).at(3).payload.arrays["0"]
    assert array.size >= 4_000_000 and array.strides == (0, 0)


def test_structs_in_lists_have_equal_sizes_in_half_of_the_samples():
    raw = {"B": {"fields": {"w": "float32[k]", "v": "list[int]"}}}
    document = doc({"l": {"type": "list[B]", "min_length": 3}}, raw=raw)
    shapes = [
        {
            (item["fields"]["w"]["shape"][0], len(item["fields"]["v"]["items"]))
            for item in node["items"]
        }
        for node in fields(document, "l")
    ]
    alike = [len(each) == 1 for each in shapes]
    assert sum(alike) >= 12 and not all(alike)


@every(
    "pattern",
    ["x+", "[a-z]+(-[0-9]{1,4})*", "(run|test)_[A-Z]{3,}", r"v\d+\.\d+", "[^a]b?", ".{3}", r"\w+@\w+\.de", "a|bc|d*"],
)  # fmt: skip
def test_text_matches_its_pattern(pattern):
    made = texts_of(pattern)
    assert made and all(matches(pattern, text) for text in made)
    assert {*fields(doc({"x": {"type": "str", "pattern": pattern}}), "x")} <= {*made}


#: Documents of which nothing can be drawn, and the reason.
IN_VAIN = {
    "a pattern": (
        doc({"x": {"type": "str", "pattern": r"\p{Greek}"}}),
        r"$.structs.A.fields.x: no text that matches the pattern '\\p{Greek}' could be drawn",
    ),
    "lengths": (doc({"x": {"type": "str", "min_length": 5, "max_length": 3}}), "$.structs.A.fields.x: no text of 5"),
    "constraints": (
        doc({}, raw={"A": {"fields": {"a": "int", "b": "int"}, "constraints": [{"expr": "a < b and b < a"}]}}),
        "$.structs.A: no values with ",
    ),
    "large numbers": (doc({"x": {"type": "int", "ge": 10**30}}), "$.structs.A.fields.x: no number between"),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_VAIN)
def test_the_reason_why_there_is_no_sample(name):
    document, reason = IN_VAIN[name]
    with bounded():
        samples = [samples_of(document).at(number) for number in (0, 1, 399)]
    for sample in samples:
        assert sample.payload is None and sample.reason.startswith(reason)


HOSTILE = {
    "structs that double": lambda: doc(
        {"x": "S0"},
        structs={**{f"S{i}": {"a": f"S{i + 1}", "b": f"S{i + 1}"} for i in range(40)}, "S40": {"x": "int"}},
    ),
    "lists in lists": lambda: doc({"x": "list[" * 40 + "int" + "]" * 40}),
    "structs inside themselves": lambda: doc({"a": "A | null", "l": "list[A]", "d": "dict[str, A]"}),
    "a long list": lambda: doc({"x": {"type": "list[int]", "min_length": 10**9}}),
    "many fields": lambda: doc({f"f{i}": "float32[n] | null" for i in range(3000)}),
    "a long text": lambda: doc({"x": {"type": "str", "min_length": 10**9}}),
    "a hard pattern": lambda: doc({"x": {"type": "str", "pattern": "((a{1,9}){1,9}){1,9}" * 4}}),
    "constraints that nothing meets": lambda: doc(
        {},
        raw={"A": {"fields": {"a": "int"}, "constraints": [{"expr": f"a * a == {i} - 7 * a * a"} for i in range(3, 60)]}},
    ),
}  # fmt: skip


@every("name", HOSTILE)
def test_hostile_schemas_are_bounded(name):
    with bounded(20):
        document = HOSTILE[name]()
        for number in FIRST[: cases(25)]:
            samples_of(document).at(number)


def test_every_type_is_drawn():
    declared = {
        "a": "pytree", "k": "prng_key[rbg, n]", "t": "tuple[int, ...]", "d": "dict[str, float]", "y": "dtype", "p": "path",
        "b": "bytes", "c": "complex", "e": "E", "l": 'literal[b"a", 1j]', "s": {"type": "pytree", "kind": "static"},
    }  # fmt: skip
    document = doc(declared, enums={"E": ["x"]})
    for number in FIRST:
        sample = samples_of(document).at(number)
        assert sample.reason is None and conform_node(document, tree(sample)) == []


def test_decks_show_all_choices_of_bytes():
    held = fields(doc({"b": {"type": "bytes", "choices": ["a", "bc"]}}), "b")
    assert len({str(plain_value(node)) for node in held}) == 2
