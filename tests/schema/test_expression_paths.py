"""Paths in the expressions of schema files: what lint knows of them, and that what it proposes passes."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.expressions import parse
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
        },
    },
}


def findings(expression, place="constraints", struct="Root", **more):
    structs = json.loads(json.dumps(STRUCTS))
    if place == "constraints":
        structs[struct]["constraints"] = [{"expr": expression}]
    else:
        structs[struct]["fields"]["made"] = {"kind": "opaque", "derived": expression}
    data = {
        "language": "1",
        "schema": "test.paths",
        "version": 1,
        "root": "Root",
        "dims": {"n": {}, "d": {}},
        "enums": {"Mode": ["fast", "slow"]},
        "structs": structs,
        **more,
    }
    source = read_text(json.dumps(data))
    found = lint_document(parse_document(source), source)
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
    ("mu == 0", "NQX116", "expected a field or dim of Root, got 'mu'", "did you mean 'adam.mu'?"),
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
    ("step > 0 and sizes > 0", "NQX115", "expected one truth value", "write `all(sizes > 0)`"),
    (
        "max(adam.step, stages.blocks.width) > 3",
        "NQX115",
        "one value",
        "`max(stages.blocks.width)`",
    ),
    ("anything.mu > 0", "NQX114", "got pytree", None),
    ("handle.mu > 0", "NQX114", "got a value of any type", None),
    ("name.upper == 'X'", "NQX114", "got str", None),
    ("n.x > 0", "NQX116", "got the size 'n'", "did you mean 'n'?"),
    ("adam.kind == 'fats'", "NQX115", "expected one of fast, slow", "did you mean 'fast'?"),
    ("all(stages.blocks.mode == 'slwo')", "NQX115", "expected one of fast, slow", "'slow'"),
    ("all(modes == 'slwo')", "NQX115", "expected one of fast, slow", "'slow'"),
]


@pytest.mark.parametrize(
    ("expression", "code", "message", "hint"), WRONG, ids=[text for text, *_ in WRONG]
)
def test_errors(expression, code, message, hint):
    (found,) = findings(expression)
    assert found.code == code
    assert message in found.message
    assert hint is None or hint in found.hint
    assert found.line


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
)


def proposed(expression, finding):
    """The expressions that a finding proposes: whole, or for the part that its message shows."""
    part = re.search(r"in `(.*)`$", finding.message)
    bad = part[1] if part else re.search(r"got '(.*)'$", finding.message)[1]
    for good in re.findall(r"did you mean '(.*)'\?", finding.hint or ""):
        yield re.sub(rf"(?<![\w.]){re.escape(bad)}(?![\w])", good, expression)
    for good in re.findall(r"write `(.*)`", finding.hint or ""):
        yield good
        yield expression.replace(bad, good)


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
