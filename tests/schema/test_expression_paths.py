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


@pytest.mark.parametrize("expression", FINE)
def test_nothing_is_wrong_with(expression):
    assert findings(expression) == []
    assert findings(expression, "derived") == []


WRONG = [
    (
        "adam.stpe > 0",
        "NQX116",
        "expected a field of Adam, got 'stpe'",
        "did you mean 'adam.step'?",
    ),
    ("optimizer.rate > 0", "NQX116", "expected a field of Adam, got 'rate'", "optimizer.step"),
    ("adam.foo > 0", "NQX116", "got 'foo'", "fields: adam.kind, adam.mu, adam.step"),
    ("mu == 0", "NQX116", "expected a field or dim of Root, got 'mu'", "write `all(adam.mu == 0)`"),
    ("adam.mu.shape == (3,)", "NQX114", "got float32[m] in", "write `shape(adam.mu) == (3,)`"),
    ("x.shape[0] == n", "NQX114", "got float32[n, d] in", "write `shape(x)[0] == n`"),
    ("x[0] > 3", "NQX115", "expected a list or a tuple at x", "write `shape(x)[0] > 3`"),
    ("extent[3] > 1", "NQX115", "expected an item 3 of extent, got 3 items", "'extent[2]'"),
    ("extent[-4] > 1", "NQX115", "expected an item -4 of extent", "'extent[-3]'"),
    ("sizes[0] > 1", "NQX115", "got dict[str, int]", "write `all(sizes > 1)`"),
    ("sizes.first > 1", "NQX114", "got dict[str, int]", "write `all(sizes > 1)`"),
    (
        "stages.blocks.widht == d",
        "NQX116",
        "of Block, got 'widht'",
        "all(stages.blocks.width == d)",
    ),
    ("stages.width == d", "NQX116", "of Stage, got 'width'", "all(stages.blocks.width == d)"),
    ("stages.blocks.width == d", "NQX115", "expected one value", "all(stages.blocks.width == d)"),
    ("sizes > 0", "NQX115", "expected one value, got one for each item", "write `all(sizes > 0)`"),
    (
        "step > 0 and sizes > 0",
        "NQX115",
        "expected one truth value",
        "write `step > 0 and all(sizes > 0)`",
    ),
    (
        "max(adam.step, stages.blocks.width) > 3",
        "NQX115",
        "one value",
        "write `max(adam.step, max(stages.blocks.width)) > 3`",
    ),
    ("anything.mu > 0", "NQX114", "got pytree", None),
    ("handle.mu > 0", "NQX114", "got a value of any type", "declare a struct"),
    ("stages[0].blocks.width == [4, 4]", "NQX115", "one for each item", None),
    (
        "stages.blocks[0].width > 1",
        "NQX115",
        "expected one value, got one for each item",
        "write `all(stages.blocks[0].width > 1)`",
    ),
    (
        "shaped.width == [4, 4]",
        "NQX115",
        "one for each item",
        "write `len(shaped) == 2 and shaped[0].width == 4 and shaped[1].width == 4`",
    ),
    ("shaped.width[0] == 3", "NQX115", "got int in `shaped.width[0]`", "'shaped[0].width'"),
    ("step > 0 and flag == true", "NQX116", "got 'true'", "did you mean 'True'?"),
    ("optimizer == null", "NQX116", "got 'null'", "did you mean 'None'?"),
    ("adam.kind == fast", "NQX116", "got 'fast'", "write `adam.kind == 'fast'`"),
    ("x in ('a', 'b')", "NQX115", "two values to compare", None),
    ("sum(extent[1]) > 3", "NQX115", "got int in `sum(extent[1])`", "write `extent[1] > 3`"),
    ("sum(size(x)) > 3", "NQX115", "got int in `sum(size(x))`", "write `size(x) > 3`"),
    ("adam / step > 1", "NQX115", "a struct and int in `adam / step`", "'adam.step'"),
    ("shaped[0] > 1", "NQX115", "got a struct and int", "`all(shaped[0].w > 1)`"),
    ("sum(shaped) > 1", "NQX115", "got a struct in", "did you mean 'shaped.w'?"),
    ("adam", "NQX115", "expected one truth value, got a struct", "write `adam != None`"),
    ("five > 0", "NQX115", "one for each element", "write `all(five > 0)`"),
    ("all(five == six)", "NQX115", "got [5] and [6]", "write `shape(five) == shape(six)`"),
    ("len(step) == 3", "NQX115", "got int in `len(step)`", "write `step == 3`"),
    ("len(scalar) == 1", "NQX115", "got an array in `len(scalar)`", "write `scalar == 1`"),
    ("shape(x)[2] == 3", "NQX115", "an axis 2, got 2 axes", "write `shape(x)[1] == 3`"),
    ("shape(step)[0] == 3", "NQX115", "an axis 0, got no axes", "write `step == 3`"),
    ("phase > 0", "NQX115", "got complex and int", "write `abs(phase) > 0`"),
    ("key > 0", "NQX115", "got a random key and int", "names of arrays or numbers: "),
    ("len(key) == 0", "NQX115", "got a random key", "functions of a random key: size, shape, ndim"),
    ("name + 1 == 'a'", "NQX115", "got text and int in `name + 1`", "write `name + '1' == 'a'`"),
    (
        "-name == 'a'",
        "NQX115",
        "expected arrays or numbers, got text in `-name`",
        "names of arrays or numbers: ",
    ),
    ("step > None", "NQX115", "expected two values to order, got None", "write `step != None`"),
    ("max(step, name) > 1", "NQX115", "got int and text", "write `max(step, len(name)) > 1`"),
    ("sum(mixed) > 1", "NQX115", "got items of several types", "names of arrays or numbers: "),
    ("shaped == [1]", "NQX115", "got a list and a list", None),
    ("layer == 3 or shapd.width == 3", "NQX116", "got 'layer'", "fields: "),
    ("name.upper == 'X'", "NQX114", "got str", "did you mean 'name'?"),
    ("n.x > 0", "NQX116", "got the size 'n'", "did you mean 'n'?"),
    ("dims.d > 0", "NQX116", "got 'dims'", "did you mean 'd'?"),
    ("self.step > 0", "NQX116", "got 'self'", "did you mean 'step'?"),
    ("adam.kind == Mode.fast", "NQX116", "got 'Mode'", "write `adam.kind == 'fast'`"),
    ("nz > 0", "NQX116", "got 'nz'", "did you mean 'n'?"),
    ("hidden > 0", "NQX116", "got 'hidden'", "; sizes: d, "),
    ("len(shaped) == nshaped", "NQX116", "got 'nshaped'", "; sizes: d, "),
    (
        "isfinite(name)",
        "NQX115",
        "got text in",
        "functions of text: len, size, shape, ndim, min, max, all, any",
    ),
    ("sum(name) > 1", "NQX115", "got text in", "write `len(name) > 1`"),
    ("name > step", "NQX115", "got text and int", "write `len(name) > step`"),
    ("0 < name", "NQX115", "got int and text in `0 < name`", "write `0 < len(name)`"),
    ("0 < step < 'x'", "NQX115", "got int and text in `step < 'x'`", "names of arrays or numbers"),
    ("0 < step < '3'", "NQX115", "got int and text in `step < '3'`", "write `0 < step < 3`"),
    ("0 < name < 3", "NQX115", "got int and text in `0 < name`", "write `0 < len(name) < 3`"),
    ("n < d < step < name", "NQX115", "in `step < name`", "write `n < d < step < len(name)`"),
    ("0 < phase < 3", "NQX115", "got complex and int", "write `0 < abs(phase) < 3`"),
    ("step == '3' or step > '3'", "NQX115", "got int and text", "write `step == '3' or step > 3`"),
    ("x.dtype == 'float32'", "NQX114", "a field 'dtype'", "functions of x: len, "),
    ("adam.kind == 'fats'", "NQX115", "expected one of fast, slow", "did you mean 'fast'?"),
    ("all(stages.blocks.mode == 'slwo')", "NQX115", "expected one of fast, slow", "'slow'"),
    ("all(modes == 'slwo')", "NQX115", "expected one of fast, slow", "'slow'"),
]


@pytest.mark.parametrize(
    ("expression", "code", "message", "hint"), WRONG, ids=[text for text, *_ in WRONG]
)
def test_errors(expression, code, message, hint):
    found = findings(expression)[0]
    assert found.code == code
    assert message in found.message
    assert hint is None or hint in found.hint
    assert found.line


# Texts that are no expressions, and the expression that the hint proposes for each.
SYNTAX = [
    ("adam['step'] > 1", "NQX114", "got the subscript 'step'", "write `adam.step > 1`"),
    ("sizes['a'] == 1", "NQX114", "got the subscript 'a'", "write `all(sizes == 1)`"),
    ("all(b.width > 0 for b in shaped)", "NQX114", "comprehension", "`all(shaped.width > 0)`"),
    ("sum([b.width for b in shaped]) > 1", "NQX114", "comprehension", "`sum(shaped.width) > 1`"),
    ("all(v > 0 for v in sizes.values())", "NQX114", "comprehension", "`all(sizes > 0)`"),
    ("all(b.widht > 0 for b in shaped)", "NQX114", "comprehension", "`all(shaped.width > 0)`"),
    ("sum(i for s in shaped for i in s) > 1", "NQX114", "comprehension", "all(layers.width > 0)"),
    ("all(a > b for a, b in pairs)", "NQX114", "comprehension", "all(layers.width > 0)"),
    ("x.sum() > 1", "NQX114", "got the method 'sum'", "write `sum(x) > 1`"),
    ("np.sum(x) > 1", "NQX114", "got the method 'sum'", "write `sum(x) > 1`"),
    ("sum(x, axis=0) > 1", "NQX114", "got '='", "write `sum(x) > 1`"),
    ("np.mean(x) > 1", "NQX114", "the name of a function", "write `sum(x) / size(x) > 1`"),
    ("mean(adam.mu) > 1", "NQX116", "got 'mean'", "`sum(adam.mu) / size(adam.mu) > 1`"),
    ("mean(name) > 1", "NQX116", "got 'mean'", "write `len(name) / size(name) > 1`"),
    ("mean(shaped) > 1", "NQX116", "got 'mean'", "sum(shaped.w) / size(shaped.w) > 1)`"),
    ("sqrt(x) > 1", "NQX116", "got 'sqrt'", "write `all(x ** 0.5 > 1)`"),
    ("sqrt(name) > 1", "NQX116", "got 'sqrt'", "functions: len, "),
    ("int(step / 2) > 1", "NQX116", "got 'int'", "write `step / 2 // 1 > 1`"),
    ("isnan(x)", "NQX116", "got 'isnan'", "write `any(x != x)`"),
    ("isnan(step)", "NQX116", "got 'isnan'", "write `step != step`"),
    ("prod(extent) == 3", "NQX116", "got 'prod'", "`extent[0] * extent[1] * extent[2] == 3`"),
    ("np.prod(shape(x)) == 4", "NQX114", "got the method 'prod'", "write `size(x) == 4`"),
    ("prod(x) == 4", "NQX116", "got 'prod'", "functions: len, "),
    ("step in sizes", "NQX114", "constants after `in`", "write `any(sizes == step)`"),
    ("step not in extent", "NQX114", "after `not in`", "write `all(extent != step)`"),
    ("step in {1, 2}", "NQX114", "got '{'", "write `step in (1, 2)`"),
    ("step in (d, 2)", "NQX114", "constants after `in`", "write `step == d or step == 2`"),
    ("step > 1 && !flag", "NQX114", "got '&'", "write `step > 1 and not flag`"),
    ("flag || step = 3", "NQX114", "got '|'", "write `flag or step == 3`"),
    ("step ^ 2 => 4", "NQX114", "got '^'", "write `step ** 2 >= 4`"),
    ("optimizer is not null", "NQX114", "got `is not`", "write `optimizer != None`"),
    ("(step > 1 and flag", "NQX114", "balanced brackets", "write `step > 1 and flag`"),
    ("step > 1 and", "NQX114", "nothing more", "write `step > 1`"),
    ("step > 1 if flag", "NQX114", "got 'step", "write `step > 1 if flag else True`"),
    ("shaped[0:2].width > 1", "NQX114", "got ':'", "write `all(shaped.width > 1)`"),
    ("shaped[d].width > 1", "NQX114", "whole number as subscript", "`all(shaped.width > 1)`"),
    ("step +", "NQX114", "nothing more", "sizes: "),
    ("1e999 > step", "NQX114", "too large for a float", "fields: adam, "),
    ("name.startswith('a')", "NQX114", "the method 'startswith'", "functions: len, "),
]


@pytest.mark.parametrize(
    ("expression", "code", "message", "hint"), SYNTAX, ids=[text for text, *_ in SYNTAX]
)
def test_syntax_of_python_that_has_another_form_here(expression, code, message, hint):
    with pytest.raises(SchemaError, match=re.escape(message)) as error:
        parse(expression)
    assert error.value.code == code
    (found,) = findings(expression)
    assert (found.code, found.message) == (code, error.value.diagnostics[0].message)
    assert hint in found.hint
    for text in proposed(expression, found):
        assert findings(text) == []


EQUATIONS = [
    ("prod(extent)", "write `extent[0] * extent[1] * extent[2]`"),
    ("x.shape[0]", "write `shape(x)[0]`"),
    ("sum(v for v in extent)", "write `sum(extent)`"),
    ("step", "give the field `kind: static`"),
    ("adam.step", "give the field `kind: static`"),
    ("name", "dims: n, d; static ints: extent[0], "),
    ("nope", "declare it under `dims:`; dims: n, d; static ints: extent[0], "),
    ("2 *", "static ints: extent[0], extent[1], extent[2]"),
]


@pytest.mark.parametrize(("equation", "hint"), EQUATIONS)
def test_equations_name_what_is_possible(equation, hint):
    found = findings(equation, "equals")[0]
    assert hint in found.hint


def test_only_the_first_texts_of_a_file_are_repaired():
    structs = {"Root": {"fields": {"n": "int"}, "constraints": [{"expr": "n = 1"}] * 40}}
    found = findings("n > 0", "derived", structs=structs, dims={})
    hints = [each.hint for each in found]
    assert hints == ["write `n == 1`"] * 30 + ["compare with =="] * 10


def test_a_text_beside_a_malformed_type_keeps_the_hint_of_the_parser():
    structs = {"Root": {"fields": {"n": "list["}, "constraints": [{"expr": "n = 1"}]}}
    found = findings("n > 0", "derived", structs=structs, dims={})
    assert [each.hint for each in found][1:] == ["compare with =="]


def test_derived_fields_may_hold_the_values_of_all_items():
    assert findings("stages.blocks.width", "derived") == []


def test_sizes_of_derived_fields_are_those_that_an_instance_shows():
    assert findings("n * d", "derived") == []
    assert findings("k", "derived", "Block") == []
    assert findings("m + n", "derived", "Adam")[0].code == "NQX116"
    (found,) = findings("n", "derived", "Sgd")
    assert "expected a size that the arrays of Sgd show, got 'n'" in found.message


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


@pytest.mark.parametrize("expression", FINE)
def test_it_has_a_value(expression):
    evaluate(parse(expression), VALUES)


def runs(text):
    """True if an expression has a value, or fails for a reason that other values would not give."""
    try:
        evaluate(parse(text), VALUES)
    except SchemaError as error:  # one of two options may have a value
        return " if " in text or "equal numbers of items" in str(error)
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
