"""Samples: lint evaluates every part of an expression on samples, and is silent where other values could fit."""

import pytest

from neuralqx_struct.expressions import parse
from neuralqx_struct.schema.lint.samples import SampleEvaluation
from neuralqx_struct.schema.reading import parse_document
from neuralqx_struct.schema.text.loader import read_text
from tests.builders import every

DOCUMENT = parse_document(
    read_text("""
language: "1"
schema: test.trial
version: 1
root: R
structs:
  Node: {fields: {inner: "list[Node]", other: Node | null, width: int, w: "float32[k]"}}
  R:
    fields:
      a: int | str
      b: str | int
      c: bool
      n: int
      name: str
      x: "float32[rows, cols]"
      five: "float32[5]"
      free: "float32[...]"
      nodes: "dict[str, Node]"
      pair: "tuple[int, int]"
      list: "list[int]"
      tree: pytree
      key: "prng_key[threefry2x32]"
      layers: "Node[4][3]"
""")
)


def problems(text, single=True):
    found = SampleEvaluation(DOCUMENT, "R", ["rows"]).problems(parse(text), single=single)
    return [(problem.severity, problem.message) for problem in found]


@every(
    "text",
    [
        "a > 1 or a > 'x'",
        "a < b and b < a",
        "a + n > 0 and b + 'x' == a",
        "n / (rows - 7) > 1",  # other numbers
        "all(2 * pair + 2 * list > 0)",  # a list of two
        "sum(tree) > 1 and tree == 'a' and tree",
        "all(free + five > 0) and shape(free)[6] == 1",
        "size(nodes) > 1 and all(nodes.inner.other.inner.width > 0)",
        "all(x + five > 0)",  # five columns
        "2 ** n ** 2 > 1",
        "all(layers.w > 0) and layers.width > 0 or c",
        "list[63] > 0 or list[1000000] > 'a'",  # not tried
    ],
)
def test_values_that_fit_are_found(text):
    assert [each for each in problems(text) if each[0] == "error"] == []


@every(
    ("text", "messages"),
    [
        ("c and name + 1 == 2", ["`name + 1`"]),
        ("c or name", []),
        ("n < 0 < name", ["got int and str in `0 < name`"]),
        ("-name if c else five > 0", ["got str in `-name`", "got float32[5] in `five > 0`"]),
        ("not (c or not (c and sum(n)))", ["got int in `sum(n)`"]),
        ("n + n + name + n > 1", ["got int and str in `n + n + name`"]),
        ("a < [1] and c", ["in `a < [1]`"]),
        ("any(key) or sum(key) > 1", ["in `any(key)`", "in `sum(key)`"]),
        ("sum(all(x)) > 1", ["got bool in `sum(all(x))`"]),
        ("tree > 1 and five > 0 and name > 1", ["float32[5] in `five > 0`", "in `name > 1`"]),
    ],
)
def test_every_part_is_tried(text, messages):
    found = problems(text)
    assert len(found) >= len(messages)
    for message in messages:
        assert any(message in each for _, each in found), found


def test_named_sizes_may_be_one():
    assert [severity for severity, _ in problems("x > 0")] == ["warning"]
    assert [severity for severity, _ in problems("c and x > 0")] == ["warning"]
    assert [severity for severity, _ in problems("max(x, 1) > 0")] == ["warning"]
    assert problems("x > 0", single=False) == []


WIDE = parse_document(
    read_text(
        "language: '1'\nschema: test.wide\nversion: 1\nroot: R\nstructs:\n  R:\n    fields:\n"
        + "".join(f"      {name}: str | bytes\n" for name in "pqrstuv")
    )
)


@pytest.mark.parametrize(
    ("document", "text", "reason"),
    [
        (DOCUMENT, "list[64] > 0", "item 64"),
        (DOCUMENT, "n > 0 and pair[0] + list[-70] > 0", "item 70"),
        (WIDE, " + ".join(f"len({each})" for each in "pqrstuv") + " > 'x'", "64 combinations"),
        (DOCUMENT, "sum(nodes.inner.inner.inner.width) + list[63] > 0", "more steps"),
    ],
)
def test_limits_of_samples_are_told(document, text, reason):
    (found,) = SampleEvaluation(document, "R", []).problems(parse(text), single=True)
    assert (found.code, found.severity) == ("NQX139", "info")
    assert reason in found.message


def test_steps_of_a_struct_are_shared():
    samples = SampleEvaluation(DOCUMENT, "R", [])
    samples.budget.steps = 20
    texts = ["n + n > 'x'", "n + n + n + n + n + n > 0", "n > 0"]
    codes = [[found.code for found in samples.problems(parse(text), single=True)] for text in texts]
    assert codes[0] == ["NQX115"] and codes[2] == ["NQX139"]
