"""neuralqx_struct.documents.writer: text that reads back equal, and documents from classes."""

import enum
import keyword
import pathlib
from typing import Annotated, Any, Final, Generic, Literal, NewType, Optional, TypeVar

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from neuralqx_struct.checkpoint.schemas import schema_of
from neuralqx_struct.classes.documents import dump_schema
from neuralqx_struct.classes.schemas import load_schema
from neuralqx_struct.errors import SchemaError, ValidationError, has_errors
from neuralqx_struct.fieldspec import MISSING, RESERVED_NAMES, field
from neuralqx_struct.schema.lock import full_fingerprint, payload_fingerprint
from neuralqx_struct.schema.reading import document_from_data, parse_document
from neuralqx_struct.schema.text.loader import read_text
from neuralqx_struct.struct import Struct
from neuralqx_struct.struct.registration import register_class
from neuralqx_struct.tools.linting import lint_document
from neuralqx_struct.types import type_names
from tests.builders import every, refused

# --- text: generated documents -------------------------------------------------------------------------------------

words = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(
    lambda w: (
        not (
            keyword.iskeyword(w)
            or w in type_names()
            or w in RESERVED_NAMES
            or w.startswith(("__", "_nqx"))
            or w == "_"
        )
    )
)
texts = st.text(st.characters(codec="utf-8"), max_size=30)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def optional(**members):
    return st.fixed_dictionaries({}, optional=members)


def type_texts(dims, names):
    extents = st.sampled_from([*dims, "3", "2 * n + 1", "..."])
    shapes = (
        st.lists(extents, max_size=3).filter(lambda axes: axes.count("...") <= 1).map(", ".join)
    )
    flat = (
        st.sampled_from(
            ["bool", "int", "float", "complex", "str", "bytes", "path", "dtype", "pytree", *names]
        )
        | st.builds(
            "{}[{}]".format, st.sampled_from(["float32", "int8", "bfloat16", "complex128"]), shapes
        )
        | st.sampled_from(
            ["prng_key[threefry2x32]", "prng_key[rbg, 4]", "literal['a', \"b'\", 3, True]"]
        )
    )
    nested = st.recursive(
        flat,
        lambda inner: (
            st.builds("list[{}]".format, inner)
            | st.builds("dict[str, {}]".format, inner)
            | st.builds("tuple[{}, {}]".format, inner, inner)
            | st.builds("tuple[{}, ...]".format, inner)
        ),
        max_leaves=3,
    )
    return nested | st.builds("{} | null".format, nested)


@st.composite
def documents(draw):
    dims = draw(st.lists(words, unique_by=str.lower, max_size=3))
    enums = draw(st.lists(words, unique_by=str.lower, max_size=2))
    structs = draw(
        st.lists(
            words.filter(lambda w: w not in enums), unique_by=str.lower, min_size=1, max_size=3
        )
    )
    declared = type_texts(dims or ["n"], enums)
    fields = st.dictionaries(
        words,
        declared
        | st.fixed_dictionaries(
            {"type": declared},
            optional={
                "kind": st.sampled_from(["node", "static", "opaque"]),
                "default": values,
                "serialize": st.booleans(),
                "doc": texts,
                "unit": texts,
                "tags": st.lists(texts, max_size=2),
                "aliases": st.lists(words, max_size=2),
                "deprecated": st.booleans() | texts,
                "examples": st.lists(values, max_size=2),
                "ge": numbers,
                "max_length": st.integers(0, 9),
                "choices": st.lists(values, max_size=2),
                "finite": st.booleans(),
            },
        )
        | st.just({"type": "array", "dtype": "float32", "shape": [3, "n"]})
        | st.just({"type": "int", "kind": "static", "derived": "1 + 2"}),
        max_size=4,
    )
    steps = st.sampled_from(
        [
            {"rename": {"field": "a", "to": "b", "in": "S"}},
            {"add": {"field": "a", "default": None}},
            {"split": {"field": "a", "axis": 0, "into": {"b": "n", "c": 3}}},
            {"remove": {"field": "a", "undo_default": 0, "lossy": True}},
        ]
    )
    version = draw(st.integers(1, 9))
    data = {
        "language": "1",
        "schema": ".".join(draw(st.lists(words, min_size=1, max_size=3))),
        "version": version,
        "root": structs[0],
        "structs": {
            name: {
                **draw(optional(doc=texts, reserved=st.lists(words, max_size=2))),
                "fields": draw(fields),
                **draw(optional(constraints=st.just([{"expr": "1 < 2", "message": "m: #"}]))),
            }
            for name in structs
        },
        **draw(
            optional(
                doc=texts,
                compatibility=st.sampled_from(["none", "full"]),
                dims=st.fixed_dictionaries(
                    {n: optional(min=st.integers(0, 3), doc=texts) for n in dims}
                ),
                migrations=st.lists(
                    st.fixed_dictionaries(
                        {"from": st.just(max(1, version - 1)), "steps": st.lists(steps, max_size=2)}
                    ),
                    max_size=1,
                ),
            )
        ),
        "enums": {
            n: draw(st.just(["up", "on"]) | st.just({"members": ["no", "y"], "default": "no"}))
            for n in enums
        },
    }
    return document_from_data(data, "<generated>")


def assert_same(read, document):
    assert read == document
    assert full_fingerprint(read) == full_fingerprint(document)
    assert payload_fingerprint(read) == payload_fingerprint(document)


@given(documents())
def test_dumped_documents_read_back_equal(document):
    text = dump_schema(document)
    read = parse_document(read_text(text))
    assert_same(read, document)
    assert dump_schema(read) == text


@given(documents())
def test_load_schema_is_the_inverse_of_dump_schema(document):
    assume(not has_errors(lint_document(document)))
    schema = load_schema(dump_schema(document))
    assert_same(schema.document, document)
    assert dump_schema(schema) == dump_schema(document)


def test_the_published_schemas_survive(vmc_folder):
    schema = load_schema(vmc_folder)
    for version in schema.versions:
        assert_same(
            load_schema(dump_schema(schema.at(version))).document, schema.at(version).document
        )


def test_the_text_starts_with_the_modeline_and_uses_shorthands():
    data = {
        "language": "1",
        "schema": "a",
        "version": 1,
        "root": "A",
        "enums": {"E": {"members": ["x"]}},
    }
    data["structs"] = {
        "A": {"fields": {"w": {"type": "float32[n]"}, "e": {"type": "E", "default": "x"}}}
    }
    lines = dump_schema(document_from_data(data, "d")).splitlines()
    assert lines[0].startswith("# yaml-language-server: $schema=https://")
    assert lines[-2:] == ["  A:", '    fields: {w: "float32[n]", e: {type: E, default: x}}']
    assert "  E: [x]" in lines


@pytest.mark.parametrize("what", [3, "text", int])
def test_only_documents_schemas_and_struct_classes_have_text(what):
    with refused(TypeError, "Document", "dump_schema()"):
        dump_schema(what)


def test_what_yaml_cannot_hold_has_no_text():
    data = {
        "language": "1",
        "schema": "a",
        "version": 1,
        "root": "A",
        "structs": {"A": {"fields": {}, "doc": "\ud800"}},
    }
    with pytest.raises(SchemaError):
        dump_schema(document_from_data(data, "d"))


# --- classes -------------------------------------------------------------------------------------------------------


class Phase(enum.Enum):
    WARM = "w"
    COLD = "c"


class Access(enum.Flag):
    READ = 1


class Sampler(Struct):
    """State of the sampler.

    Two lines.
    """

    n_chains: int = 16


Seconds = NewType("Seconds", float)
T = TypeVar("T")


class Box(Struct, Generic[T]):
    inner: T


def shaped(dtypes, dim_str):
    """What jaxtyping makes of Float32[Array, "n d"], as far as it is looked at."""
    return type("Shaped", (), {"dtypes": dtypes, "dim_str": dim_str})


def declared(hint, **options):
    """The field that a class with one annotation gets, and the notes."""
    cls = type(Struct)(
        "State",
        (Struct,),
        {"__annotations__": {"x": hint}, "__module__": __name__, "x": field(**options)},
    )
    report = []
    document = schema_of(cls, schema="lab.state", report=report)
    assert not has_errors(lint_document(document))
    assert_same(load_schema(dump_schema(cls)).document, schema_of(cls))
    return document, document.structs["State"].fields["x"], report


@every(
    ("hint", "text"),
    [
        (bool, "bool"),
        (int, "int"),
        (complex, "complex"),
        (bytes, "bytes"),
        (pathlib.Path, "path"),
        (pathlib.PurePosixPath, "path"),
        (np.dtype, "dtype"),
        (np.dtype[np.float32], "dtype"),
        (None, "null"),
        (float | None, "float | null"),
        (Optional[str], "str | null"),  # noqa: UP045 - the old spelling is read too
        (int | str | None, "int | str | null"),
        ("float | None", "float | null"),
        ("Sampler", "Sampler"),
        (Sampler | None, "Sampler | null"),
        (Box[int], "Box"),
        (list[int], "list[int]"),
        (list, "list[pytree]"),
        (list["Sampler"], "list[Sampler]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (tuple[int, str], "tuple[int, str]"),
        (tuple, "tuple[pytree, ...]"),
        (dict[str, float], "dict[str, float]"),
        (Literal["a", 3, True], "literal['a', 3, True]"),
        (Literal["a", None], "literal['a'] | null"),  # noqa: PYI061 - as above
        (Literal[None], "null"),  # noqa: PYI061
        (Phase, "Phase"),
        (Annotated[int, "meta"], "int"),
        (Seconds, "float"),
        (npt.NDArray[np.float32], "float32[...]"),
        (npt.NDArray[np.bool_], "bool[...]"),
        (shaped(["float32"], "n 3 n+1"), "float32[n, 3, n + 1]"),
        (shaped(["complex64"], ""), "complex64[]"),
        (shaped(("int8",), "... d"), "int8[..., d]"),
        (shaped(["float32"], "*batch rows=2 _ #d ?k"), "float32[..., 2, _, _, _]"),
        (shaped(["prng_key"], "n"), "prng_key[_, n]"),
        (shaped(["float32"], "n") | None, "float32[n] | null"),
        (shaped(["float32"], "n") | shaped(["float32"], "m"), "float32[_]"),
        (
            shaped(["float32"], "2 n") | shaped(["float32"], "2 m") | shaped(["float32"], "2"),
            "float32[2, _] | float32[2]",
        ),
        (Final[int], "int"),
        (Any, "pytree"),
        (object, "pytree"),
        (T, "pytree"),
    ],
)
def test_annotations_become_types(hint, text):
    _, read, report = declared(hint)
    assert read.text == text
    assert report == []


@every(
    ("hint", "text"),
    [
        (jax.Array, "pytree"),
        (np.ndarray, "pytree"),
        (jax.Array | None, "pytree"),
        (list[jax.Array], "list[pytree]"),
        (npt.NDArray[Any], "pytree"),
        (shaped(["float32"], "{n}"), "pytree"),
        (shaped(["rational"], "n"), "pytree"),
        (shaped(Any, "n"), "pytree"),
        (dict[int, str], "pytree"),
        (dict, "pytree"),
        (Access, "pytree"),
        (set[int], "pytree"),
        ("Unknown", "pytree"),
        ("not python", "pytree"),
        (list[int] | list[str], "pytree"),
    ],
)
def test_what_the_language_cannot_say_becomes_pytree_with_a_note(hint, text):
    _, read, report = declared(hint)
    assert read.text == text
    assert [(d.code, d.severity, d.path) for d in report] == [("NQX134", "info", "State.x")]


def test_arrays_without_dtype_are_told_how_to_say_it():
    for hint in (jax.Array, shaped(["bool", "float32"], "n")):
        assert "jaxtyping" in declared(hint)[2][0].hint


@every(
    ("hint", "options", "member", "value"),
    [
        (int, {"default": 3}, "default", 3),
        (float | None, {"default": None}, "default", None),
        (Phase, {"default": Phase.COLD}, "default", "COLD"),
        (np.dtype, {"default": np.dtype("int8"), "static": True}, "default", "int8"),
        (pathlib.Path, {"default": pathlib.PurePosixPath("a/b")}, "default", "a/b"),
        (tuple[int, int], {"default": (1, 2), "static": True}, "default", [1, 2]),
        (dict[str, int], {"default_factory": dict}, "default", {}),
        (Any, {"default_factory": lambda: 1, "doc": "kept"}, "doc", "kept"),
        (int, {"static": True}, "kind", "static"),
        (Any, {"pytree": False, "default": None, "reset": True}, "reset", True),
        (int, {"serialize": False, "default": 1}, "serialize", False),
        (int, {"doc": "Sites."}, "doc", "Sites."),
        (int, {"aliases": ["n"]}, "aliases", ["n"]),
        (int, {"metadata": {"tags": ["b", "a"]}}, "tags", ["a", "b"]),
        (int, {"metadata": {"unit": "s"}}, "unit", "s"),
        (int, {"metadata": {"deprecated": "use n"}}, "deprecated", "use n"),
        (int, {"metadata": {"examples": [1, 2]}}, "examples", [1, 2]),
    ],
)
def test_field_arguments_become_members(hint, options, member, value):
    assert getattr(declared(hint, **options)[1], member) == value


@pytest.mark.parametrize(
    "options",
    [
        {"default": float("nan")},
        {"default": b"x"},
        {"default_factory": lambda: 3},
        # The file has no type that tells these from text and lists.
        {"default": pathlib.Path("x"), "static": True},
        {"default": (1, "a"), "static": True},
        {"default": Phase.WARM, "static": True},
    ],
)
def test_defaults_that_no_file_can_hold_are_left_out_with_a_note(options):
    _, read, report = declared(Any, **options)
    assert not read.has_default
    assert [each.code for each in report] == ["NQX134"]


@every(
    ("hint", "default", "text"),
    [
        (float, float("-inf"), "-.inf"),
        (float, float("nan"), ".nan"),
        (float, -0.0, -0.0),
        (complex, 1 - 2.5j, "1-2.5j"),
        (complex, complex(float("nan"), -0.0), ".nan-0j"),
        (complex | None, 2j, "2j"),
        (bytes, b"\xff\x00", {"base64": "/wA="}),
        (str | bytes, b"a", {"base64": "YQ=="}),
        (tuple[float, bytes], (float("inf"), b""), [".inf", {"base64": ""}]),
    ],
)
def test_numbers_and_bytes_that_json_lacks_are_defaults(hint, default, text):
    _, read, report = declared(hint, default=default, static=True)
    assert not report
    assert repr(read.default) == repr(text)


@pytest.mark.parametrize(("hint", "default"), [(int, "text"), (float, None), (Sampler, ())])
def test_defaults_that_do_not_fit_their_type_are_left_out_with_a_note(hint, default):
    _, read, report = declared(hint, default=default)
    assert not read.has_default
    assert [each.code for each in report] == ["NQX134"]


@every(
    ("hint", "default", "kept"),
    [
        (Phase | str, Phase.WARM, False),
        (Phase | str, "WARM", True),
        (Phase | None, Phase.WARM, True),
        (str | pathlib.Path, pathlib.Path("x"), False),
        (float | int, 2, False),
        (float | str, ".inf", False),
        (str | float, float("inf"), False),
        (float | str, float("inf"), True),
        (bool | int, 1, True),
        (tuple[str | Phase, ...], (Phase.WARM, "a"), False),
        (tuple[str | int, ...], (1, "a"), True),
    ],
)
def test_defaults_of_unions_are_left_out_where_a_file_gives_another_value(hint, default, kept):
    _, read, report = declared(hint, default=default)
    assert read.has_default == kept
    expected = "left out: a default that a file holds as another option's value"
    assert [note.message for note in report] == ([] if kept else [expected])


def test_static_fields_that_hold_lists_become_pytree():
    _, read, report = declared(list[int], static=True)
    assert (read.text, read.kind) == ("pytree", "static")
    assert [each.code for each in report] == ["NQX134"]


def test_opaque_fields_have_no_type_unless_they_are_saved():
    assert declared(set, pytree=False)[1].type is None
    assert declared(int, pytree=False, serialize=True)[1].type == "int"


def test_code_is_left_out_with_a_note():
    def positive(x):
        return x > 0

    class Hooked(Struct):
        x: int = field(converter=int, validator=[positive])
        y: int = field(static=True, derived=lambda self: self.x)

    report = []
    fields = schema_of(Hooked, report=report).structs["Hooked"].fields
    assert list(fields) == ["x"]
    assert [d.message for d in report] == [
        "left out: checks and conversions by Python code (int, positive)",
        "left out: a field that Python code derives",
    ]


def test_structs_and_enums_are_declared_once_with_their_docs():
    class Outer(Struct):
        a: Sampler
        b: list[Sampler]
        phase: Phase = Phase.WARM
        inner: "Outer | None" = None

    document = schema_of(Outer)
    assert list(document.structs) == ["Outer", "Sampler"]
    assert document.structs["Sampler"].doc == "State of the sampler.\n\nTwo lines."
    assert document.structs["Outer"].doc == ""
    assert document.structs["Outer"].fields["inner"].text == "Outer | null"
    assert document.enums["Phase"].members == ["WARM", "COLD"]


def test_docs_of_fields_come_from_the_docstring_where_the_field_says_nothing():
    class Layer(Struct):
        """A layer.

        Attributes:
            w (array): Weights: one for each
                pair of units.

            n: Units.
            said: Not this.
            other: Not a field.

        Example:
            m: not this.
        """

        w: float
        n: int
        m: int = 0
        said: int = field(default=0, doc="This.")

    fields = schema_of(Layer).structs["Layer"].fields
    assert {name: declared.doc for name, declared in fields.items()} == {
        "w": "Weights: one for each pair of units.",
        "n": "Units.",
        "m": "",
        "said": "This.",
    }


def test_classes_of_one_name_are_told_apart():
    def make(hint):
        return type(Struct)("Part", (Struct,), {"__annotations__": {"x": hint}})

    class Pair(Struct):
        a: make(int)
        b: make(str)

    document = schema_of(Pair)
    assert [document.structs["Pair"].fields[n].text for n in "ab"] == ["Part", "Part2"]
    assert document.structs["Part2"].fields["x"].text == "str"


def test_a_class_that_is_named_like_a_type_gets_another_name():
    array = type(Struct)("array", (Struct,), {"__annotations__": {"x": int}})
    assert schema_of(array).root == "array2"


def test_inherited_fields_are_read_where_they_were_written():
    @register_class
    class Promoted:
        rate: float = 0.5

    class Child(Sampler):
        extra: "list[Sampler]" = field(default_factory=list)

    assert {n: d.text for n, d in schema_of(Child).structs["Child"].fields.items()} == {
        "n_chains": "int",
        "extra": "list[Sampler]",
    }
    assert schema_of(Promoted).structs["Promoted"].fields["rate"].default == 0.5


@pytest.mark.parametrize(
    ("module", "name", "identity"),
    [
        ("lab.model", "VMCState", "lab.model.vmc_state"),
        ("__main__", "State", "__main__.state"),
        ("my-run", "Net2Layer", "my_run.net2_layer"),
        ("1st", "A", "_1st.a"),
    ],
)
def test_the_identity_comes_from_module_and_name(module, name, identity):
    cls = type(Struct)(name, (Struct,), {"__annotations__": {}, "__module__": module})
    assert schema_of(cls).id == identity
    assert schema_of(cls, schema="lab.x", version=3).ref(name) == f"lab.x@3:{name}"


def test_names_that_the_language_lacks_are_an_error():
    class Wide(Struct):
        größe: int

    with refused(SchemaError, "NQX118", "$.structs.Wide.fields['größe']"):
        schema_of(Wide)


def test_a_document_that_no_default_can_mend_is_an_error():
    class Twice(Struct):
        a: int = field(aliases=["x"])
        b: int = field(aliases=["x"])

    with refused(SchemaError, "NQX123", "x"):
        schema_of(Twice)


def test_only_struct_classes_have_a_schema():
    with refused(TypeError, "schema_of()"):
        schema_of(int)


def test_classes_that_a_schema_made_have_its_document(vmc_folder):
    schema = load_schema(vmc_folder)
    assert schema_of(schema.root) == schema.document
    assert schema_of(schema.Sampler) == schema.document
    assert schema_of(schema.at(1).root) == schema.at(1).document
    assert dump_schema(schema.root) == dump_schema(schema)

    class Named(schema.Sampler):
        def mean(self):
            return self.sigma.mean()

    assert schema_of(Named) == schema.document

    class Holder(Struct):
        sampler: schema.Sampler

    report = []
    document = schema_of(Holder, report=report)
    assert document.structs["Holder"].fields["sampler"].text == "neuralqx.vmc_state.Sampler"
    assert document.uses == ["neuralqx.vmc_state@3"] and report == []
    assert load_schema(dump_schema(document)).document == document


def test_classes_of_a_written_schema_take_the_same_values():
    class Model(Struct):
        w: shaped(["float32"], "n d")
        sampler: Sampler
        step: int = 0

    written = load_schema(dump_schema(Model))
    model = written.Model(w=jnp.ones((2, 3)), sampler=written.Sampler(n_chains=4))
    assert (model.step, model.sampler.n_chains) == (0, 4)


# --- jaxtyping -----------------------------------------------------------------------------------------------------


@every(
    ("hint", "text"),
    [
        (jaxtyping.Float32[jax.Array, "n d"], "float32[n, d]"),
        (jaxtyping.Float32[np.ndarray, "3 n+1"], "float32[3, n + 1]"),
        (jaxtyping.Complex64[jax.Array, ""], "complex64[]"),
        (jaxtyping.BFloat16[jax.Array, "*batch d"], "bfloat16[..., d]"),
        (jaxtyping.Bool[jax.Array, "... d"], "bool[..., d]"),
        (jaxtyping.Int8[jax.Array, "rows=2 _"], "int8[2, _]"),
        (jaxtyping.UInt32[jax.Array, "#n n"], "uint32[_, n]"),
        (jaxtyping.Float[jax.Array, "n"], "floating[n]"),
        (jaxtyping.Integer[jax.Array, "n"], "integer[n]"),
        (jaxtyping.Num[jax.Array, ""], "number[]"),
        (jaxtyping.Key[jax.Array, ""], "prng_key"),
        (jaxtyping.Key[jax.Array, "n"], "prng_key[_, n]"),
        (jaxtyping.PRNGKeyArray, "prng_key | uint32[_]"),
        (jaxtyping.Float32[jax.Array, "n"] | None, "float32[n] | null"),
        (list[jaxtyping.Float32[jax.Array, "n 2"]], "list[float32[n, 2]]"),  # noqa: F722 - sizes, no annotation
        ("jaxtyping.Float32[jax.Array, 'n d']", "float32[n, d]"),
    ],
)
def test_annotations_of_jaxtyping_become_arrays(hint, text):
    _, read, report = declared(hint)
    assert read.text == text
    assert report == []


@pytest.mark.parametrize(
    "hint",
    [
        jaxtyping.Shaped[jax.Array, "n"],
        jaxtyping.Float32[jax.Array, "{n}"],
        jaxtyping.PyTree[jaxtyping.Float32[jax.Array, "n"]],
    ],
    ids=str,
)
def test_annotations_of_jaxtyping_that_say_less_become_pytree(hint):
    _, read, report = declared(hint)
    assert read.text == "pytree"
    assert [d.code for d in report] == ["NQX134"]


def test_a_class_with_jaxtyping_and_the_class_of_its_schema_take_the_same_values():
    class Dense(Struct):
        """A layer."""

        w: jaxtyping.Float32[jax.Array, "n_in n_out"]  # noqa: F722 - sizes, no annotation
        b: jaxtyping.Float32[jax.Array, "n_out"] | None = None  # noqa: F821

    class Model(Struct):
        layers: list[Dense]
        step: int = 0

    built = load_schema(dump_schema(Model))
    layer = built.Dense(w=jnp.ones((2, 3)), b=jnp.zeros(3))
    assert built.Model(layers=[layer]).step == 0
    with refused(ValidationError, "NQX413", "$.b", "n_out"):
        built.Dense(w=jnp.ones((2, 3)), b=jnp.zeros(2))
    assert built.Dense.__doc__ == "A layer."


# --- generated classes ---------------------------------------------------------------------------------------------

hints = st.recursive(
    st.sampled_from(
        [
            bool,
            int,
            float,
            complex,
            str,
            bytes,
            pathlib.Path,
            np.dtype,
            Any,
            Phase,
            Sampler,
            jax.Array,
        ]
    )
    | st.builds(
        lambda dtype, axes: dtype[jax.Array, " ".join(axes)],
        st.sampled_from([jaxtyping.Float32, jaxtyping.Int8, jaxtyping.Complex64, jaxtyping.Float]),
        st.lists(st.sampled_from(["n", "m", "3", "n+1", "_"]), max_size=3),
    )
    | st.builds(
        lambda values: Literal[tuple(values)],
        st.lists(st.sampled_from(["a", "b", 1, True]), min_size=1),
    ),
    lambda inner: (
        st.builds(lambda t: list[t], inner)
        | st.builds(lambda t: dict[str, t], inner)
        | st.builds(lambda t: tuple[t, ...], inner)
        | st.builds(lambda a, b: tuple[a, b], inner, inner)
        | st.builds(lambda t: Optional[t], inner)  # noqa: UP045
    ),
    max_leaves=4,
)
defaults = st.sampled_from(
    [MISSING, None, 0, 1, 2.5, "a", True, (), (1, 2), Phase.WARM, float("nan")]
)


@st.composite
def struct_classes(draw):
    namespace = {"__annotations__": {}, "__module__": __name__, "__doc__": draw(st.none() | texts)}
    for name in draw(
        st.lists(
            words.filter(lambda w: w.lower() not in ("n", "m")), unique_by=str.lower, max_size=4
        )
    ):
        namespace["__annotations__"][name] = draw(hints)
        default, static = draw(defaults), draw(st.booleans())
        given_default = {} if default is MISSING else {"default": default}
        namespace[name] = field(
            static=static, kw_only=True, doc=draw(st.none() | texts), **given_default
        )
    return type(Struct)("Generated", (Struct,), namespace)


@given(struct_classes())
def test_every_class_has_a_document_that_reads_back_equal(cls):
    report = []
    try:
        document = schema_of(cls, schema="lab.generated", report=report)
    except SchemaError as error:  # a number for an array whose sizes only an instance tells
        assert {d.code for d in error.diagnostics} == {"NQX108"}
        return
    assert not has_errors(lint_document(document))
    assert {d.code for d in report} <= {"NQX134"}
    schema = load_schema(dump_schema(document))
    assert_same(schema.document, document)
    # And once more, from the class that the document makes.
    assert_same(schema_of(schema.root), document)
    assert list(schema.root.__nqx_fields__) == list(cls.__nqx_fields__)
    for name, spec in cls.__nqx_fields__.items():
        read = schema.root.__nqx_fields__[name]
        assert (read.kind, read.doc or None) == (spec.kind, spec.doc or None)
