from __future__ import annotations

import dataclasses
import functools
import pathlib
import pickle
import typing
from dataclasses import KW_ONLY, InitVar
from typing import Annotated, ClassVar

import attrs
import equinox
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import pytest

import neuralqx_struct as s
from neuralqx_struct import fieldspec
from neuralqx_struct.errors import ValidationError
from neuralqx_struct.fieldspec import MISSING, FieldKind, FieldSpec, field, is_struct
from neuralqx_struct.struct import Struct
from neuralqx_struct.struct.declarations import InitVarSpec, own_fields, required_positional
from tests.builders import every, refused


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({}, FieldKind.NODE),
        ({"static": True}, FieldKind.STATIC),
        ({"pytree": False}, FieldKind.OPAQUE),
    ],
)
def test_kinds(arguments, kind):
    assert field(**arguments).kind is kind


CONFLICTS = {
    "static and opaque": ({"static": True, "pytree": False}, "pytree=False"),
    "two defaults": ({"default": 1, "default_factory": list}, "default_factory"),
    "derived default": ({"static": True, "derived": len, "default": 1}, "derived"),
    "derived node": ({"derived": len}, "pytree=False"),
    "derived stored": ({"static": True, "derived": len, "serialize": True}, "serialize=True"),
    "derived converter": ({"static": True, "derived": len, "converter": int}, "converter"),
    "reset node": ({"reset": True, "default": 1}, "pytree=False"),
    "reset nothing": ({"pytree": False, "reset": True}, "reset=True"),
}
WRONG = {
    "aliases": ({"aliases": "bc"}, "aliases"),
    "tags": ({"metadata": {"tags": 3}}, "tags"),
    "no tags": ({"metadata": {"tags": None}}, "tags"),
    "converter": ({"converter": 3}, "converter"),
    "validator": ({"validator": [3]}, "validator"),
}


@every("case", CONFLICTS)
def test_arguments_that_contradict_each_other(case):
    arguments, argument = CONFLICTS[case]
    with refused(ValueError, "field()", argument):
        field(**arguments)


@pytest.mark.parametrize("case", WRONG)
def test_arguments_of_a_wrong_type(case):
    arguments, argument = WRONG[case]
    with refused(TypeError, "field()", argument) as caught:
        field(**arguments)
    assert not isinstance(caught.value, ValueError)


def test_a_required_field_has_no_default():
    class A(Struct):
        x: int
        y: int = field(converter=int)

    for spec in A.fields().values():
        with refused(TypeError, spec.name):
            spec.make_default()
    with refused(TypeError, "field()"):
        field().make_default()


def test_a_required_positional_field_after_one_with_a_default():
    with pytest.raises(ValidationError) as caught:

        class A(Struct):
            x: int = 1
            y: int

    assert caught.value.diagnostics[0].path == "A.y"
    assert "'x'" in str(caught.value)


def test_a_spec_says_what_it_is():
    spec = field(static=True, default=0, metadata={"tags": "a"}, validator=[len, bool])
    assert (spec.has_default, spec.is_derived, spec.should_serialize, spec.make_default()) == (
        True,
        False,
        True,
        0,
    )
    assert spec.tags == {"a"} and spec.validators == (len, bool)
    assert field(metadata={"tags": ["a", "b"]}).tags == {"a", "b"}
    assert (
        not field(pytree=False).should_serialize
        and field(pytree=False, serialize=True).should_serialize
    )
    assert (
        not field(static=True, derived=len).should_serialize
        and not field(static=True, derived=len).init
    )
    assert field(default_factory=list).make_default() == []
    assert hash(spec) and repr(MISSING) == "MISSING"
    with pytest.raises(TypeError):
        spec.metadata["x"] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "x"


def _converter(self, value):
    return value


ARITY = [
    (int, 1), (str.strip, 1), (np.asarray, 1), (jnp.asarray, 1), (pathlib.Path, 1), (round, 1), (FieldKind, 1), (len, 1),
    (lambda v, scale=2: v, 1), (lambda v, *, k=1: v, 1), (lambda self, v: v, 2), (_converter, 2), (lambda: 1, 0),
    (functools.partial(jnp.asarray, dtype=jnp.float32), 1), (jax.jit(lambda v: v), 1), (jnp.float32, 1), (np.sum, 1), (np.negative, 1),
    ([].append, 1), (tuple, 1),
]  # fmt: skip


@every(("function", "count"), ARITY)
def test_required_positional(function, count):
    assert required_positional(function) == count


def test_special_forms_under_postponed_annotations():
    class Body:
        a: int
        b: ClassVar[int] = 3
        c: typing.ClassVar = 4
        d: Annotated[ClassVar[int], "x"] = 5
        e: InitVar[int]
        f: dataclasses.InitVar[int] = 2
        _: KW_ONLY
        g: str = "g"

    specs = own_fields(Body)
    assert list(specs) == ["a", "e", "f", "g"]
    assert specs["g"].kw_only and not specs["a"].kw_only
    init_vars = {n: spec.default for n, spec in specs.items() if isinstance(spec, InitVarSpec)}
    assert init_vars == {"e": MISSING, "f": 2}
    assert specs["a"].type == "int"


def test_real_annotations_are_understood_too():
    namespace = {
        "__annotations__": {
            "a": int,
            "b": ClassVar[int],
            "c": Annotated[ClassVar[int], 1],
            "d": InitVar[int],
            "_": KW_ONLY,
        }
    }
    specs = own_fields(type("Body", (), namespace))
    assert list(specs) == ["a", "d"]
    assert type(specs["a"]) is FieldSpec and type(specs["d"]) is InitVarSpec


@pytest.mark.parametrize(
    "default", [[], {}, set(), np.zeros(2), bytearray()], ids=lambda d: type(d).__name__
)
def test_mutable_defaults_are_refused(default):
    with refused(TypeError, "Body.x", "default_factory"):
        own_fields(type("Body", (), {"__annotations__": {"x": object}, "x": default}))


def test_jax_arrays_are_no_mutable_defaults():
    specs = own_fields(type("Body", (), {"__annotations__": {"x": object}, "x": jnp.zeros(2)}))
    assert specs["x"].default.shape == (2,)


def test_field_without_annotation():
    with refused(TypeError, "Body.y", "field()"):
        own_fields(type("Body", (), {"y": field(default=3)}))


def test_slots_are_not_defaults():
    class Body:
        __slots__ = ("x",)
        x: int

    with refused(TypeError, "Body.x", "__slots__"):
        own_fields(Body)


def test_stdlib_dataclass_fields_keep_what_they_say():
    @dataclasses.dataclass(frozen=True)
    class Body:
        x: list = dataclasses.field(default_factory=list, repr=False)
        y: int = dataclasses.field(default=3, kw_only=True)

    specs = own_fields(Body)
    assert (
        specs["x"].make_default() == []
        and not specs["x"].repr
        and specs["y"].default == 3
        and specs["y"].kw_only
    )


def test_is_struct_asks_the_class_attribute():
    Marked = type("Marked", (), {"__nqx_fields__": {}})
    assert is_struct(Marked) and is_struct(Marked()) and not is_struct(3) and not is_struct(int)


def test_every_public_name_is_there():
    assert all(hasattr(fieldspec, name) for name in fieldspec.__all__)
    assert FieldSpec().kind is FieldKind.NODE


class TestFieldsOfOthers:
    """A declaration of another library is no default, which every instance would hold."""

    @pytest.mark.parametrize(
        ("declared", "library"),
        [
            (dataclasses.field(default=1), "dataclasses"),
            (flax.struct.field(pytree_node=False), "flax"),
            (equinox.field(static=True), "equinox"),
            (attrs.field(default=1), "attrs"),
            (pydantic.Field(default=1), "Pydantic"),
        ],
    )
    def test_refused(self, declared, library):
        with refused(TypeError, "A.n", library, "field(static=True)"):
            type(s.Struct)(
                "A",
                (s.Struct,),
                {"__annotations__": {"n": int}, "n": declared, "__module__": __name__},
            )


class TestNamesTakenTwice:
    def test_methods_and_properties(self):
        with refused(TypeError, "A.x"):

            class A(s.Struct):
                x: int

                @property
                def x(self):
                    return 1

        with refused(TypeError, "B.x"):

            class B(s.Struct):
                x: int

                def x(self):
                    return 1

    def test_functions_are_defaults_all_the_same(self):
        class A(s.Struct):
            act: object = s.field(static=True, default=len)
            other: typing.Callable = lambda x: x + 1

        assert A().other(1) == 2


class TestHooksThatCannotBeCalled:
    @pytest.mark.parametrize(
        ("arguments", "allowed", "got"),
        [
            ({"converter": lambda a, b, c: a}, "converter(self, value)", "(a, b, c)"),
            ({"converter": lambda: 1}, "converter(value)", "()"),
            ({"converter": lambda v, *, k: v}, "converter(value)", "(v, *, k)"),
            ({"validator": [len, lambda: True]}, "validator(self, value)", "()"),
            ({"static": True, "derived": lambda self, x: x}, "derived(self)", "(self, x)"),
            ({"default_factory": lambda x: x}, "default_factory", "(x)"),
        ],
    )
    def test_refused_with_the_class(self, arguments, allowed, got):
        with refused(TypeError, "A.x", allowed, got):

            class A(s.Struct):
                x: object = field(**arguments)

    def test_those_that_can(self):
        class A(s.Struct):
            a: object = field(converter=functools.partial(lambda v, k: v + k, k=1), default=1)
            b: object = field(converter=lambda *values: values[-1], default=2)
            c: object = field(validator=lambda value, scale=1, *rest, **more: True, default=3)
            d: object = field(converter=jax.jit(lambda x: x + 1), default=4)
            e: int = field(static=True, derived=lambda *values: len(values))

        assert (A().a, A().b, A().c, int(A().d), A().e) == (2, 2, 3, 5, 0)


@pytest.mark.parametrize(
    "default", [jnp.ones(1), (np.ones(1),), (1, [2])], ids=["array", "holds array", "no hash"]
)
def test_defaults_of_static_fields_are_hashable_and_hold_no_array(default):
    with refused(TypeError, "A.n"):

        class A(s.Struct):
            n: object = field(static=True, default=default)

    class B(s.Struct):
        n: object = field(static=True, default=default, converter=lambda value: len(value))

    assert B().n == len(default)


def test_declarations_pickle_where_their_hooks_do():
    spec = field(default=1, metadata={"tags": ["a"], "unit": "m"}, validator=callable, kw_only=True)
    back = pickle.loads(pickle.dumps(spec))
    assert (back.default, back.tags, dict(back.metadata), back.validators) == (
        1,
        {"a"},
        {"tags": ["a"], "unit": "m"},
        (callable,),
    )
    assert back.kw_only and back.default_factory is MISSING
    with pytest.raises(TypeError):
        back.metadata["unit"] = "s"


class TestAToyHook:
    """A new kind of hook is one record; every way to make an instance runs it."""

    @pytest.fixture(autouse=True)
    def _toys(self, monkeypatch):
        def from_metadata(name):
            def functions(spec):
                return (spec.metadata[name],) if name in spec.metadata else ()

            return functions

        toys = (
            fieldspec.FieldHook("rounding", from_metadata("rounding"), converts=True),
            fieldspec.FieldHook("limit", from_metadata("limit"), converts=False),
        )
        monkeypatch.setattr(fieldspec, "VALUE_HOOKS", (*fieldspec.VALUE_HOOKS, *toys))

    @staticmethod
    def ways(cls):
        made = cls(x=1.6)

        class Below(cls):
            def __init__(self, x):
                super().__init__(x)

        return {
            "construct": cls,
            "replace": lambda x: made.replace(x=x),
            "restore": lambda x: cls.__nqx_restore__({"x": x}),
            "a written __init__": Below,
            "from_state_dict": lambda x: cls.from_state_dict(
                {
                    **made.to_state_dict(),
                    "manifest": cls.__nqx_assemble__({"x": x}).to_state_dict()["manifest"],
                }
            ),
        }

    def test_converts(self):
        class A(s.Struct):
            x: float = field(metadata={"rounding": round})

        for name, make in self.ways(A).items():
            assert make(2.7).x == 3, name

    def test_converts_behind_a_converter(self):
        class A(s.Struct):
            x: float = field(converter=lambda x: x / 2, metadata={"rounding": round})

        assert A(5.0).x == 2

    def test_checks(self):
        class A(s.Struct):
            x: float = field(metadata={"limit": lambda x: x < 5})

        for name, make in self.ways(A).items():
            assert make(2.7).x == 2.7, name
            with refused(s.StructError, "NQX416", "7.5"):
                make(7.5)

    def test_the_arity_is_checked(self):
        with refused(TypeError, "rounding", "A.x"):

            class A(s.Struct):
                x: float = field(metadata={"rounding": lambda a, b, c: a})

    def test_the_schema_notes_it(self):
        class A(s.Struct):
            x: float = field(metadata={"limit": abs})

        report = []
        s.schema_of(A, report=report)
        assert [d.message for d in report] == [
            "left out: checks and conversions by Python code (abs)"
        ]
