"""Equations of dims with values that the root holds in structs, tuples and lists."""

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralqx_struct as s
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.diff import diff_documents
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.expressions import parse_equation
from neuralqx_struct.schema.lock import payload_fingerprint
from neuralqx_struct.schema.sizes.comparison import shown_sizes
from neuralqx_struct.tools.linting import lint_document, lint_series
from tests.builders import doc, every, refused, series_of

INT = {"type": "int", "kind": "static", "ge": 0}
STRUCTS = {
    "Config": {"heads": INT, "size": INT, "other": INT},
    "Layer": {"width": INT, "w": "int8[m]"},
}
FIELDS = {
    "config": "Config",
    "maybe": "Config | null",
    "extent": {"type": "tuple[int, int]", "kind": "static"},
    "layers": "list[Layer]",
    "free": "int8[j]",
    "step": "int",
    "name": {"type": "str", "kind": "static"},
    "alpha": INT,
    "x": "float32[d]",
}
EQUATIONS = {
    "config.heads * config.size": lambda v: v.config.heads * v.config.size,
    "extent[0] * extent[-1] + alpha": lambda v: v.extent[0] * v.extent[1] + v.alpha,
    "sum(layers.width)": lambda v: sum(layer.width for layer in v.layers),
    "len(layers) + 1": lambda v: len(v.layers) + 1,
    "max(extent)": lambda v: max(v.extent),
    "max(config.heads, 3)": lambda v: max(v.config.heads, 3),
    "shape(free)[0] + size(free)": lambda v: 2 * v.free.size,
    "2 * sum(extent)": lambda v: 2 * sum(v.extent),
}


def declared(equation, version=1, made=None, structs=STRUCTS, fields=FIELDS):
    dims = {"d": {"equals": equation}}
    return doc(dict(fields), version, made, structs, dims=dims)


def errors(document):
    return [d for d in lint_document(document, None) if d.severity == "error"]


@every("equation", EQUATIONS)
def test_sizes_that_fields_give(equation, tmp_path):
    document = declared(equation)
    assert errors(document) == []
    schema = s.load_schema(s.dump_schema(document))
    for key in range(5):
        made = s.example(schema.A, key=key)
        assert made.x.shape == (EQUATIONS[equation](made),)
        with refused(s.ValidationError, "NQX413", "$.x"):
            made.replace(x=jax.numpy.ones(made.x.size + 1))
        path = made.export(tmp_path / str(key))
        assert s.validate(path, schema) == []
        assert schema.load(path) == made
        assert jax.jit(lambda a: a.replace(x=2 * a.x))(made).x.shape == made.x.shape
    assert "d" in shown_sizes(document, "A")


WRONG = [
    ("config.hads", "NQX116", "'config.heads'"),
    ("2 * config", "NQX103", "alpha, config.heads"),
    ("extent", "NQX103", "extent[0], extent[1]"),
    ("extent[2]", "NQX115", "extent[1]"),
    ("layers", "NQX103", "static ints: alpha"),
    ("layers.width", "NQX115", "write sum(layers.width)"),
    ("free + 1", "NQX103", "static ints: alpha"),
    ("step", "NQX103", "`kind: static`"),
    ("name", "NQX103", None),
    ("sum(free)", "NQX103", None),
    ("sum(layers.w)", "NQX103", None),
    ("len(d)", "NQX116", None),
    ("nothing.at.all", "NQX116", "fields: alpha, config"),
]


@every(("equation", "code", "hint"), WRONG)
def test_errors(equation, code, hint):
    found = errors(declared(equation))
    assert found[0].code == code
    assert hint is None or hint in found[0].hint


words = st.sampled_from([*FIELDS, "heads", "size", "width", "w", "hads", "leyers", "d"])
texts = st.builds(
    lambda head, steps, form: form.format(head + "".join(steps)),
    words,
    st.lists(words.map(".{}".format) | st.integers(-3, 3).map("[{}]".format), max_size=2),
    st.sampled_from(["{}", "2 * {}", "sum({})", "len({})", "shape({})[0]", "max({}) + 1"]),
)


@given(texts)
def test_every_proposal_is_an_equation_without_that_error(equation):
    before = errors(declared(equation))
    for found in before:
        hint = found.hint or ""
        if "`kind" in hint or ("write `" not in hint and "did you mean '" not in hint):
            continue
        good = hint.partition("`" if "write" in hint else "'")[2].rstrip("?")[:-1]
        left = {d.message for d in errors(declared(good))}
        bad = found.message.rpartition("`")[0].rpartition("`")[2] or found.message.split("'")[-2]
        left_in_place = {d.message for d in errors(declared(equation.replace(bad, good)))}
        assert found.message not in left & left_in_place


def test_functions_of_fields_are_names():
    expression = parse_equation("2 * n + sum(layers.width) - shape(x.y)[0] + max(n, a.b)")
    assert expression.names == {"n", "sum(layers.width)", "shape(x.y)[0]", "a.b"}
    assert parse_equation("max((n, m)) + abs(n)").names == {"n", "m"}


# ---------------------------------------------------------------------------------------------------------------------
# Two versions


def test_an_equation_that_stays_needs_no_step():
    for equation in EQUATIONS:
        old, new = declared(equation), declared(equation, 2)
        assert prove(old, new) == []
        assert payload_fingerprint(old) == payload_fingerprint(new)
        assert payload_fingerprint(old) != payload_fingerprint(declared("alpha"))


def errors_between(old, new):
    found = lint_series(series_of([old, new]))
    return {each.code for each in found if each.severity == "error"}


def test_another_equation_is_a_change():
    old, new = declared("config.heads"), declared("config.size", 2)
    assert {change.code for change in diff_documents(old, new)} == {"NQX223"}
    assert errors_between(old, new) == {"NQX301"}


@pytest.mark.parametrize("equation", ["config.heads", "maybe.heads + 1", "len(layers)"])
def test_a_path_that_reaches_another_field_is_found(equation):
    made = [
        steps.rename(field="heads", to="old", within="Config"),
        steps.rename(field="other", to="heads", within="Config"),
        steps.rename(field="old", to="other", within="Config"),
        steps.rename(field="config", to="c"),
        steps.rename(field="maybe", to="config"),
        steps.rename(field="c", to="maybe"),
    ]
    used = [made[:3], made[3:]] if equation != "len(layers)" else []
    for some in used:
        structs, fields = dict(STRUCTS), dict(FIELDS)
        if some == made[3:]:
            fields["config"], fields["maybe"] = fields["maybe"], fields["config"]
        old, new = declared(equation), declared(equation, 2, some, structs, fields)
        assert "NQX305" in errors_between(old, new)
    assert prove(declared(equation), declared(equation, 2, made[:0])) == []


def test_steps_use_sizes_that_fields_give(tmp_path):
    fields = {k: v for k, v in FIELDS.items() if k != "x"}
    old = declared("config.heads", fields={**fields, "x": "float32[d + 2]"})
    split = steps.split(field="x", axis=0, into={"a": "d", "b": 2})
    new = declared(
        "config.heads", 2, [split], fields={**fields, "a": "float32[d]", "b": "float32[2]"}
    )
    assert prove(old, new) == []
    made = s.example(s.load_schema(s.dump_schema(old)).A, dims={"d": 3}, key=4)
    path = made.export(tmp_path / "old")
    for document in (old, new):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"v{document.version}.yaml").write_text(s.dump_schema(document))
    loaded = s.load_schema(tmp_path / "a").load(path)
    assert (loaded.a.size, loaded.b.size) == (made.config.heads, 2)


@pytest.mark.parametrize("kind", ["bool", "float", "complex | null"])
def test_only_static_ints_of_the_root_give_sizes(kind):
    static = {"type": kind, "kind": "static"}
    schema = s.load_schema(s.dump_schema(doc({"n": static, "x": "int8[n]"})))
    assert schema.A(n=True if kind == "bool" else 2, x=jax.numpy.ones(3, "int8")).x.shape == (3,)
    schema = s.load_schema(s.dump_schema(doc({"n": INT, "x": "int8[n]"})))
    with refused(s.ValidationError, "NQX413"):
        schema.A(n=2, x=jax.numpy.ones(3, "int8"))
