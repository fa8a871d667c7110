"""Paths in the expressions of schema files: what lint knows of them, and that what it proposes passes."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.errors import SchemaError
from neuralqx_struct.expressions import parse
from neuralqx_struct.expressions.evaluation import evaluate
from neuralqx_struct.expressions.functions import StructValue
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.tools.linting import lint_document
from tests.builders import every, refused

STRUCTS = {
    "Adam": {"params": ["m"], "fields": {"step": "int", "mu": "float32[m]", "kind": "Mode"}},
    "Sgd": {"fields": {"step": "int", "rate": "float"}},
    "Block": {
        "params": ["k"],
        "fields": {"w": "float32[k, 3]", "width": "int", "mode": "Mode | null"},
    },
    "Stage": {"fields": {"blocks": "list[Block[2]]", "named": "dict[str, Block[3]]"}},
    "Root": {
        "fields": {
            "adam": "Adam[n]",
            "optimizer": "Adam[n] | Sgd | null",
            "stages": "list[Stage]",
            "extent": {"type": "tuple[int, int, int]", "kind": "static"},
            "sizes": "dict[str, int]",
            "pairs": "tuple[tuple[int, float], ...]",
            "modes": "list[Mode]",
            "x": "float32[n, d]",
            "step": "int",
            "name": {"type": "str", "kind": "static"},
            "anything": "pytree",
            "handle": {"kind": "opaque", "default": None},
            "shaped": "list[Block[2]]",
            "flag": "bool",
            "five": "float32[5]",
            "six": "float32[6]",
            "scalar": "float32[]",
            "phase": "complex",
            "key": "prng_key[threefry2x32]",
            "mixed": "tuple[int, str]",
        },
    },
}


def findings(expression, place="constraints", struct="Root", **more):
    structs = json.loads(json.dumps(STRUCTS))
    dims = {"n": {}, "d": {}}
    if place == "constraints":
        structs[struct]["constraints"] = [{"expr": expression}]
    elif place == "equals":
        dims["n"] = {"equals": expression}
    else:
        structs[struct]["fields"]["made"] = {"kind": "opaque", "derived": expression}
    data = {
        "language": "1",
        "schema": "test.paths",
        "version": 1,
        "root": "Root",
        "dims": dims,
        "enums": {"Mode": ["fast", "slow"]},
        "structs": structs,
        **more,
    }
    source = read_text(json.dumps(data))
    try:
        found = lint_document(parse_document(source), source)
    except SchemaError as error:  # it is no expression
        found = error.diagnostics
    return [d for d in found if d.severity == "error"]


FINE = [
    "optimizer.step <= step",
    "all(stages.blocks.width == d)",
    "sum(stages.named.width) < 10 * n",
    "stages[0].blocks[-1].width > 0",
    "extent[0] * extent[-1] == extent[2]",
    "all(sizes > 0)",
    "shape(adam.mu)[0] == n",
    "all(shape(stages.blocks.w)[0] == 2)",
    "pairs[7][1] > 0.5",
    "all(pairs[0] == 1) or len(pairs) == 0",
    "sizes == None or len(sizes) > 0",
    "handle == None",
    "all(stages.blocks.mode == 'fast')",
    "all(modes != 'slow')",
    "adam.kind in ('fast', 'slow')",
    "all(sizes > 0) and all(isfinite(adam.mu))",
    "sum(2 * sizes) if all(sizes < 3) else 1",
    "abs(phase) > 0 and len(name) > 0",
    "shape(key) == () and size(anything) > 1",
    "all(mixed == 1) or mixed == (1, 'a')",
    "all(five > 0) and scalar > 0 and all(stages.blocks.w > 0)",
    "name + 'a' == 'ba' and (1, 2) + extent == (1, 2, 3, 4, 5)",
    "max(max(shaped.width), 3) >= min(step, max(extent))",
    "isfinite(phase) and sum(x) > sum(shaped.w)",
    "step if flag else size(shaped) > 1",
]


@every("expression", FINE)
def test_nothing_is_wrong_with(expression):
    assert findings(expression) == []
    assert findings(expression, "derived") == []


WRONG = [
    (
        "adam.stpe > 0",
        "NQX116",
        "'stpe'",
        "'adam.step'",
    ),
    ("optimizer.rate > 0", "NQX116", "'rate'", "optimizer.step"),
    ("adam.foo > 0", "NQX116", "got 'foo'", "fields: adam.kind, adam.mu, adam.step"),
    ("mu == 0", "NQX116", "'mu'", "'adam.mu'"),
    (
        "adam.mu.shape == (3,)",
        "NQX114",
        "`adam.mu.shape`",
        "write shape(adam.mu)",
    ),
    (
        "x.shape[0] == n",
        "NQX114",
        "`x.shape[0]`",
        "write shape(x)",
    ),
    (
        "x[0] > 3",
        "NQX115",
        "`x[0]`",
        "[0]",
    ),
    (
        "extent[3] > 1",
        "NQX115",
        "`extent[3]`",
        "extent[2]",
    ),
    (
        "extent[-4] > 1",
        "NQX115",
        "`extent[-4]`",
        "extent[2]",
    ),
    (
        "sizes[0] > 1",
        "NQX115",
        "`sizes[0]`",
        "all(sizes > 0)",
    ),
    (
        "sizes.first > 1",
        "NQX114",
        "`sizes.first`",
        "all(sizes > 0)",
    ),
    (
        "stages.blocks.widht == d",
        "NQX116",
        "`stages.blocks.widht`",
        "'stages.blocks.width'",
    ),
    (
        "stages.width == d",
        "NQX116",
        "`stages.width`",
        "fields: stages.blocks, stages.named",
    ),
    (
        "stages.blocks.width == d",
        "NQX115",
        "`stages.blocks.width == d`",
        "any(...)",
    ),
    (
        "sizes > 0",
        "NQX115",
        "`sizes > 0`",
        "any(...)",
    ),
    (
        "step > 0 and sizes > 0",
        "NQX115",
        "`sizes > 0`",
        "any(...)",
    ),
    (
        "max(adam.step, stages.blocks.width) > 3",
        "NQX115",
        "`max(adam.step, stages.blocks.width)`",
        "layers.width",
    ),
    ("anything.mu > 0", "NQX114", "pytree", None),
    ("handle.mu > 0", "NQX114", "`handle.mu`", None),
    ("stages[0].blocks.width == [4, 4]", "NQX115", "`stages[0].blocks.width == [4, 4]`", None),
    (
        "stages.blocks[0].width > 1",
        "NQX115",
        "`stages.blocks[0].width > 1`",
        "any(...)",
    ),
    (
        "shaped.width == [4, 4]",
        "NQX115",
        "`shaped.width == [4, 4]`",
        "any(...)",
    ),
    (
        "shaped.width[0] == 3",
        "NQX115",
        "`shaped.width[0]`",
        "layers[0]",
    ),
    (
        "step > 0 and flag == true",
        "NQX116",
        "'true'",
        "write `True`",
    ),
    ("optimizer == null", "NQX116", "'null'", "write `None`"),
    (
        "adam.kind == fast",
        "NQX116",
        "'fast'",
        "'fast'",
    ),
    (
        "x in ('a', 'b')",
        "NQX115",
        "`x in ('a', 'b')`",
        None,
    ),
    (
        "sum(extent[1]) > 3",
        "NQX115",
        "`sum(extent[1])`",
        None,
    ),
    (
        "sum(size(x)) > 3",
        "NQX115",
        "`sum(size(x))`",
        None,
    ),
    (
        "adam / step > 1",
        "NQX115",
        "`adam / step`",
        None,
    ),
    (
        "shaped[0] > 1",
        "NQX115",
        "`shaped[0] > 1`",
        None,
    ),
    (
        "sum(shaped) > 1",
        "NQX115",
        "`sum(shaped)`",
        None,
    ),
    ("adam", "NQX115", "`adam`", None),
    (
        "five > 0",
        "NQX115",
        "`five > 0`",
        "any(...)",
    ),
    (
        "all(five == six)",
        "NQX115",
        "`five == six`",
        None,
    ),
    (
        "len(step) == 3",
        "NQX115",
        "`len(step)`",
        None,
    ),
    (
        "len(scalar) == 1",
        "NQX115",
        "`len(scalar)`",
        None,
    ),
    (
        "shape(x)[2] == 3",
        "NQX115",
        "`shape(x)[2]`",
        None,
    ),
    (
        "shape(step)[0] == 3",
        "NQX115",
        "`shape(step)[0]`",
        None,
    ),
    (
        "phase > 0",
        "NQX115",
        "`phase > 0`",
        None,
    ),
    (
        "key > 0",
        "NQX115",
        "`key > 0`",
        None,
    ),
    (
        "len(key) == 0",
        "NQX115",
        "`len(key)`",
        None,
    ),
    (
        "name + 1 == 'a'",
        "NQX115",
        "`name + 1`",
        None,
    ),
    ("-name == 'a'", "NQX115", "`-name`", None),
    (
        "step > None",
        "NQX115",
        "`step > None`",
        None,
    ),
    (
        "max(step, name) > 1",
        "NQX115",
        "`max(step, name)`",
        None,
    ),
    (
        "sum(mixed) > 1",
        "NQX115",
        "`sum(mixed)`",
        None,
    ),
    (
        "shaped == [1]",
        "NQX115",
        "`shaped == [1]`",
        None,
    ),
    ("layer == 3 or shapd.width == 3", "NQX116", "got 'layer'", "fields: "),
    (
        "name.upper == 'X'",
        "NQX114",
        "`name.upper`",
        "shape(x), size(x)",
    ),
    (
        "n.x > 0",
        "NQX116",
        "`n.x`",
        "n",
    ),
    (
        "dims.d > 0",
        "NQX116",
        "'dims'",
        "adam, anything, extent, five",
    ),
    (
        "self.step > 0",
        "NQX116",
        "'self'",
        "'step'",
    ),
    (
        "adam.kind == Mode.fast",
        "NQX116",
        "'Mode'",
        "'modes'",
    ),
    ("nz > 0", "NQX116", "got 'nz'", "'n'"),
    ("hidden > 0", "NQX116", "got 'hidden'", "; sizes: d, "),
    (
        "len(shaped) == nshaped",
        "NQX116",
        "'nshaped'",
        "'shaped'",
    ),
    (
        "isfinite(name)",
        "NQX115",
        "`isfinite(name)`",
        None,
    ),
    ("sum(name) > 1", "NQX115", "`sum(name)`", None),
    (
        "name > step",
        "NQX115",
        "`name > step`",
        None,
    ),
    (
        "0 < name",
        "NQX115",
        "`0 < name`",
        None,
    ),
    (
        "0 < step < 'x'",
        "NQX115",
        "`step < 'x'`",
        None,
    ),
    (
        "0 < step < '3'",
        "NQX115",
        "`step < '3'`",
        None,
    ),
    (
        "0 < name < 3",
        "NQX115",
        "`0 < name`",
        None,
    ),
    (
        "n < d < step < name",
        "NQX115",
        "`step < name`",
        None,
    ),
    (
        "0 < phase < 3",
        "NQX115",
        "`phase < 3`",
        None,
    ),
    (
        "step == '3' or step > '3'",
        "NQX115",
        "`step > '3'`",
        None,
    ),
    (
        "x.dtype == 'float32'",
        "NQX114",
        "`x.dtype`",
        "shape(x), size(x)",
    ),
    ("adam.kind == 'fats'", "NQX115", "fast, slow", "'fast'"),
    ("all(stages.blocks.mode == 'slwo')", "NQX115", "fast, slow", "'slow'"),
    ("all(modes == 'slwo')", "NQX115", "fast, slow", "'slow'"),
]


@every(("expression", "code", "message", "hint"), WRONG)
def test_errors(expression, code, message, hint):
    found = findings(expression)[0]
    assert found.code == code
    assert message in found.message
    assert hint is None or hint in found.hint
    assert found.line


# Texts that are no expressions, and the expression that the hint proposes for each.
SYNTAX = [
    ("adam['step'] > 1", "NQX114", "'step'", None),
    ("sizes['a'] == 1", "NQX114", "'a'", None),
    ("all(b.width > 0 for b in shaped)", "NQX114", "column 4", "all(layers.width > 0)"),
    ("sum([b.width for b in shaped]) > 1", "NQX114", "column 5", "all(layers.width > 0)"),
    ("all(v > 0 for v in sizes.values())", "NQX114", "column 4", "all(layers.width > 0)"),
    ("all(b.widht > 0 for b in shaped)", "NQX114", "column 4", "all(layers.width > 0)"),
    ("sum(i for s in shaped for i in s) > 1", "NQX114", "column 4", "all(layers.width > 0)"),
    ("all(a > b for a, b in pairs)", "NQX114", "column 4", "all(layers.width > 0)"),
    ("x.sum() > 1", "NQX114", "'sum'", "len, size, shape"),
    ("np.sum(x) > 1", "NQX114", "'sum'", "len, size, shape"),
    ("sum(x, axis=0) > 1", "NQX114", "'='", "=="),
    ("np.mean(x) > 1", "NQX114", "'mean'", "len, size, shape"),
    ("mean(adam.mu) > 1", "NQX116", "'mean'", "sum(x) / size(x)"),
    ("mean(name) > 1", "NQX116", "'mean'", "sum(x) / size(x)"),
    ("mean(shaped) > 1", "NQX116", "'mean'", "sum(x) / size(x)"),
    ("sqrt(x) > 1", "NQX116", "'sqrt'", "x ** 0.5"),
    ("sqrt(name) > 1", "NQX116", "'sqrt'", "x ** 0.5"),
    ("int(step / 2) > 1", "NQX116", "'int'", "'min'"),
    ("isnan(x)", "NQX116", "'isnan'", "x != x"),
    ("isnan(step)", "NQX116", "'isnan'", "x != x"),
    ("prod(extent) == 3", "NQX116", "'prod'", "extent[0] * extent[1]"),
    ("np.prod(shape(x)) == 4", "NQX114", "'prod'", "len, size, shape"),
    ("prod(x) == 4", "NQX116", "'prod'", "extent[0] * extent[1]"),
    ("step in sizes", "NQX114", "`in`", "any(sizes == n)"),
    ("step not in extent", "NQX114", "`not in`", "any(sizes == n)"),
    ("step in {1, 2}", "NQX114", "'{'", "extent[0]"),
    ("step in (d, 2)", "NQX114", "`in`", "any(sizes == n)"),
    ("step > 1 && !flag", "NQX114", "'&'", "`and`"),
    ("flag || step = 3", "NQX114", "'|'", "`or`"),
    ("step ^ 2 => 4", "NQX114", "'^'", "**"),
    ("optimizer is not null", "NQX114", "`is not`", "=="),
    ("(step > 1 and flag", "NQX114", "'('", None),
    ("step > 1 and", "NQX114", "column 13", "extent[0]"),
    ("step > 1 if flag", "NQX114", "'step > 1 if flag'", "extent[0]"),
    ("shaped[0:2].width > 1", "NQX114", "':'", "extent[0]"),
    ("shaped[d].width > 1", "NQX114", "column 1", "shape(x)[0]"),
    ("step +", "NQX114", "column 7", "extent[0]"),
    ("1e999 > step", "NQX114", "column 1", None),
    ("name.startswith('a')", "NQX114", "'startswith'", "len, size, shape"),
]


@every(("expression", "code", "named", "hint"), SYNTAX)
def test_syntax_of_python_that_has_another_form_here(expression, code, named, hint):
    with refused(SchemaError, code, named) as error:
        parse(expression)
    (found,) = findings(expression)
    assert (found.code, found.message) == (code, error.value.diagnostics[0].message)
    assert hint is None or hint in found.hint


EQUATIONS = [
    ("prod(extent)", "extent[0] * extent[1]"),
    ("x.shape[0]", "write shape(x)"),
    ("step", "`kind: static`"),
    ("adam.step", "`kind: static`"),
    ("name", "extent[0]"),
    ("nope", "extent[0]"),
]


@pytest.mark.parametrize(("equation", "hint"), EQUATIONS)
def test_equations_name_what_is_possible(equation, hint):
    found = findings(equation, "equals")[0]
    assert hint in found.hint


def test_derived_fields_may_hold_the_values_of_all_items():
    assert findings("stages.blocks.width", "derived") == []


def test_sizes_of_derived_fields_are_those_that_an_instance_shows():
    assert findings("n * d", "derived") == []
    assert findings("k", "derived", "Block") == []
    assert findings("m + n", "derived", "Adam")[0].code == "NQX116"
    (found,) = findings("n", "derived", "Sgd")
    assert "Sgd" in found.message and "'n'" in found.message


def test_derived_fields_depend_on_the_fields_of_their_paths():
    fields = {"a": {"kind": "opaque", "derived": "b.x"}, "b": {"kind": "opaque", "derived": "a[0]"}}
    structs = {"Root": {"fields": {**fields, "n": "int"}}}
    found = findings("n > 0", structs=structs)
    assert any(d.code == "NQX112" and "a -> b -> a" in d.message for d in found)


# ---------------------------------------------------------------------------------------------------------------------
# Every proposal works

words = st.sampled_from(
    [
        "adam",
        "optimizer",
        "stages",
        "blocks",
        "named",
        "extent",
        "sizes",
        "pairs",
        "modes",
        "x",
        "step",
        "name",
        "width",
        "widht",
        "mu",
        "w",
        "mode",
        "kind",
        "shape",
        "size",
        "rate",
        "foo",
        "anything",
        "handle",
        "n",
        "d",
        "stp",
        "shaped",
        "flag",
        "five",
        "scalar",
        "phase",
        "mixed",
        "true",
        "fast",
    ]
)
paths = st.builds(
    lambda head, steps: head + "".join(steps),
    words,
    st.lists(words.map(".{}".format) | st.integers(-4, 4).map("[{}]".format), max_size=4),
)
expressions = st.one_of(
    st.builds("{} > {}".format, paths, st.sampled_from(["0", "n", "step"])),
    st.builds("all({} == {})".format, paths, paths),
    st.builds("{} > 0 and {} > 1".format, paths, paths),
    st.builds("sum({}) < 3".format, paths),
    st.builds("shape({})[0] == 1".format, paths),
    st.builds("max({}, {}) == 1".format, paths, paths),
    st.builds("{} == [1, 2]".format, paths),
    st.builds("{} / {} + {} <= 3".format, paths, paths, paths),
    st.builds("len({}) == {}".format, paths, paths),
    st.builds("sum(size({})) > ndim({})".format, paths, paths),
    st.builds("not {} or isfinite(abs(-{}))".format, paths, paths),
    st.builds("({} if {} else {}) == 3".format, paths, paths, paths),
)


def proposed(expression, finding):
    """The expressions that a finding proposes: whole, or for the path or name that its message shows."""
    part = re.search(r"in `(.*)`$", finding.message)
    for good in re.findall(r"did you mean '(.*)'\?", finding.hint or ""):
        bad = part[1] if part else re.search(r"got '(.*)'$", finding.message)[1]
        names = rf"(?<![\w.]){re.escape(bad)}(?![\w(])"
        yield re.sub(names, good, expression)
    yield from re.findall(r"write `(.*)`", finding.hint or "")


def block(width):
    return StructValue({"w": np.ones((width, 3)), "width": width, "mode": "fast"}, ["w"])


adam = StructValue({"step": 2, "mu": np.ones(4), "kind": "fast"}, ["mu"])
stage = StructValue({"blocks": [block(2)] * 5, "named": {"a": block(3), "b": block(3)}}, ["blocks"])
#: A value for each field and dim; lists have the items that expressions name.
VALUES = {
    "adam": adam,
    "optimizer": adam,
    "stages": [stage] * 5,
    "extent": (2, 3, 6),
    "sizes": {"first": 1, "second": 2},
    "pairs": ((1, 0.5),) * 8,
    "modes": ["fast", "slow", "fast", "slow", "fast"],
    "x": np.ones((4, 2)),
    "step": 3,
    "name": "a",
    "anything": [np.ones(3)],
    "handle": None,
    "shaped": [block(2)] * 5,
    "flag": True,
    "five": np.ones(5),
    "six": np.ones(6),
    "scalar": np.ones(()),
    "phase": 1j,
    "key": np.ones(()),
    "mixed": (1, "a"),
    "n": 4,
    "d": 2,
}


@every("expression", FINE)
def test_it_has_a_value(expression):
    evaluate(parse(expression), VALUES)


def runs(text):
    """True if an expression has a value, or fails for a reason that other values would not give."""
    try:
        evaluate(parse(text), VALUES)
    except SchemaError as error:
        # A warning says that arrays of several elements have no truth value; one of two options may have a value.
        others = ("equal numbers of items", "expected one truth value, got bool[")
        return " if " in text or any(words in str(error) for words in others)
    return True


@given(expressions, st.sampled_from(["constraints", "derived"]))
def test_lint_refuses_what_has_no_value(expression, place):
    """Expressions about which lint is silent have a value, and so have those that it proposes."""
    expression = parse(expression).text
    found = findings(expression, place)
    if not found and "anything" not in expression and "handle" not in expression:
        assert runs(expression)
    for finding in found:
        for text in re.findall(r"write `([^`]*)`", finding.hint or ""):
            assert findings(text, place) or runs(text), (finding, text)


@given(expressions, st.sampled_from(["constraints", "derived"]))
def test_every_proposal_passes_the_check_that_failed(expression, place):
    expression = parse(expression).text
    for finding in findings(expression, place):
        made = [*proposed(expression, finding)]
        left = [[d.message for d in findings(text, place)] for text in made]
        assert not made or any(finding.message not in messages for messages in left), (
            finding,
            made,
        )
