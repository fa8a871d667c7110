"""What the struct package of neuraLQX 1.1.2 gets wrong, line by line, and what happens here instead."""

from __future__ import annotations

import abc
import copy
import dataclasses
import enum
import functools
import json
import math
import pathlib
import pickle
import weakref
from collections import OrderedDict
from dataclasses import KW_ONLY, InitVar
from typing import Annotated, ClassVar, Final, Generic, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import neuralqx_struct as s
from neuralqx_struct.fieldspec import RESERVED_NAMES
from tests.builders import refused

T = TypeVar("T")


class State(s.Struct):
    params: object
    step: int = s.field(static=True, default=0)


class Color(enum.Enum):
    RED = "red"


class Gen(s.Struct, Generic[T]):
    x: T


class GenInt(Gen[int]):
    y: int = 0


class Reset(s.Struct):
    x: object
    handle: object = s.field(pytree=False, reset=True, default_factory=object)


def struct_with(annotations, **namespace):
    return s.StructMeta(
        "Made", (s.Struct,), {"__annotations__": annotations, "__module__": __name__, **namespace}
    )


def through(value):
    return s.from_state_dict(s.to_state_dict(value))


class TestAgainstItsDocument:
    def test_01_hashable_as_static_argument_key_and_static_field(self):
        a = State(jnp.ones(2), 1)
        assert hash(a) == hash(State(jnp.zeros(2), 1)) and {a: 1}[State(jnp.ones(2), 1)] == 1
        assert (
            jax.jit(lambda c, x: x + c.n, static_argnums=0)(
                struct_with({"n": int}, n=s.field(static=True))(2), 1
            )
            == 3
        )
        assert State(1.0, step=State(2.0)).step == State(2.0)

    def test_02_method_descriptors_take_one_argument(self):
        Box = struct_with({"label": str}, label=s.field(converter=str.strip))
        assert Box("  x ").label == "x"

    @pytest.mark.parametrize("count", ["100", "0", 2, 36, 37, 10**6, True])
    def test_03_int_takes_one_argument_for_every_value(self, count, tmp_path):
        class Box(s.Struct):
            count: int = s.field(converter=int)

        box = Box(count=count)
        assert (
            box.count
            == int(count)
            == box.replace(count=count).count
            == jax.tree.map(lambda x: x, box).count
        )
        assert (
            Box.from_state_dict(box.to_state_dict()) == box == Box.load(box.export(tmp_path / "b"))
        )

    @pytest.mark.parametrize("verdict", [np.False_, jnp.array(False), np.array(False), False])
    def test_04_every_false_fails(self, verdict):
        with refused(s.ValidationError, "NQX416", "Made.x"):
            struct_with({"x": int}, x=s.field(validator=lambda v: verdict))(1)

    def test_04_a_numpy_number_is_judged(self):
        with pytest.raises(s.ValidationError):
            struct_with({"lr": float}, lr=s.field(validator=lambda v: v > 0))(np.float32(-1))

    @pytest.mark.parametrize(
        "deserializer", [lambda p, c: ("two", p, c), lambda p: ("one", p)], ids=["two", "one"]
    )
    def test_05_deserializers_of_one_and_of_two_arguments(self, deserializer):
        Node = type("Node", (), {"__module__": __name__, "data": 1.0})
        s.register_pytree_type(
            Node,
            flatten=lambda n: ([n.data], None),
            unflatten=lambda aux, c: Node(),
            serializer=lambda n: {"tag": 1},
            deserializer=deserializer,
        )
        assert through(Node()) in (("two", {"tag": 1}, [1.0]), ("one", {"tag": 1}))

    def test_06_load_takes_a_class(self, tmp_path):
        path = State(1.0).export(tmp_path / "a")
        assert State.load(path, load_cls=State) == State(1.0) == s.load(path, load_cls=State)
        with refused(s.SerializationError, "NQX401", "State"):
            s.load(path, load_cls=Gen)

    def test_07_fields_is_an_ordered_dict_that_can_be_changed_without_harm(self):
        assert type(State.fields()) is OrderedDict
        State.fields().clear()
        assert list(State.fields()) == ["params", "step"]

    def test_08_the_original_stands_in_the_mro(self):
        class P:
            x: int

            def double(self):
                return self.x * 2

        Q = s.register_class(P)
        assert Q.__mro__[:2] == (Q, P) and Q(2).double() == 4

    def test_09_derived_fields_run_twice(self):
        calls = []
        cls = struct_with(
            {"n": int}, n=s.field(static=True, derived=lambda self: calls.append(1) or 1)
        )
        assert cls().n == 1 and len(calls) == 2

    def test_10_converters_run_where_it_says_and_nowhere_else(self, tmp_path):
        calls = []

        class Box(s.Struct):
            x: object = s.field(converter=lambda v: calls.append(v) or v)

        def counted(action):
            calls.clear()
            result = action()
            return len(calls), result

        n, box = counted(lambda: Box(jnp.ones(2)))
        assert n == 1
        assert counted(lambda: box.replace(x=jnp.ones(2)))[0] == 1
        for action in (
            lambda: jax.tree.map(lambda x: x, box),
            lambda: jax.jit(lambda b: b)(box),
            lambda: jax.vmap(lambda b: b)(box),
            lambda: jax.device_put(box),
            lambda: box.export(tmp_path / "box"),
            lambda: copy.deepcopy(box),
            lambda: pickle.dumps(State(box.x)),
        ):
            assert counted(action)[0] == 0
        assert counted(lambda: Box.load(tmp_path / "box"))[0] == 1

    def test_11_fresh_handles_neither_trace_nor_clash(self):
        traces = []
        run = jax.jit(lambda r: traces.append(1) or r.x)
        for _ in range(4):
            run(Reset(1.0))
        assert traces == [1] and jax.tree.map(lambda a, b: a + b, Reset(1.0), Reset(2.0)).x == 3.0

    def test_12_static_values_are_told_apart(self):
        assert [
            int(
                jax.jit(lambda a: jnp.asarray([int, bool, float].index(type(a.step))))(
                    State(1.0, v)
                )
            )
            for v in (1, True, 1.0)
        ] == [0, 1, 2]
        sign = jax.jit(lambda a: jnp.asarray(math.copysign(1, a.step)))
        assert [float(sign(State(1.0, v))) for v in (0.0, -0.0)] == [1.0, -1.0]

    def test_13_types_that_others_registered(self):
        adam = optax.adam(1e-3)
        params = {"w": jnp.ones(2)}
        again = through(State(adam.init(params))).params
        updates, after = adam.update(params, again, params)
        assert (
            type(after) is tuple and after[0].mu["w"].shape == (2,) and updates["w"].shape == (2,)
        )

    @pytest.mark.parametrize(
        "value",
        [
            math.nan,
            math.inf,
            -math.inf,
            np.complex64(1j),
            np.bytes_(b"a"),
            np.datetime64("2026-01-01"),
            Color.RED,
        ],
        ids=repr,
    )
    def test_14_the_manifest_is_strict_json(self, value, tmp_path):
        state = State(1.0, step=value)
        json.dumps(state.to_state_dict()["manifest"], allow_nan=False)
        again = State.load(state.export(tmp_path / "a"))
        assert again == state and type(again.step) is type(value)

    def test_15_class_references(self):
        assert (
            s.class_ref(State) == f"{__name__}:State"
            and s.resolve_class(s.class_ref(State)) is State
        )
        Named = s.register_class(
            type("P", (), {"__annotations__": {"x": int}, "__module__": __name__}), name="N"
        )
        assert s.class_ref(Named) == f"{__name__}:N" and through(Named(1)) == Named(1)

        class Local(s.Struct):
            x: int

        assert through(Local(2)) == Local(2)

    def test_16_what_was_not_saved_can_be_given(self):
        cls = struct_with({"x": int, "debug": str}, debug=s.field(static=True, serialize=False))
        payload = cls(1, debug="x").to_state_dict()
        with refused(s.SerializationError, "NQX414", "$.debug", "fill={'debug': ...}"):
            cls.from_state_dict(payload)
        assert cls.from_state_dict(payload, fill={"debug": "y"}) == cls(1, debug="y")

    def test_17_a_field_without_annotation_is_told_of(self):
        with refused(TypeError, "Made.y", "y: object"):
            struct_with({}, y=s.field(default=3))


CONVERTERS = {
    "jnp.asarray": (jnp.asarray, [1.0, 2.0]),
    "jnp.array": (jnp.array, [1.0]),
    "np.asarray": (np.asarray, [1.0]),
    "np.array": (np.array, [1.0]),
    "jnp.sum": (jnp.sum, np.ones(2)),
    "jnp.ravel": (jnp.ravel, np.ones((2, 1))),
    "str.strip": (str.strip, " x "),
    "round": (round, 1.2),
    "Path": (pathlib.PurePosixPath, "a/b"),
    "Enum": (Color, "red"),
    "default": (lambda v, scale=2: v * 1, 3),
    "int": (int, "100"),
    "float": (float, "1.5"),
    "str": (str, 3),
    "bool": (bool, 3),
    "tuple": (tuple, [1]),
    "list": (list, (1,)),
    "dict": (dict, [("a", 1)]),
    "set": (set, [1]),
    "jnp.float32": (jnp.float32, 1.5),
    "partial": (functools.partial(jnp.asarray, dtype=jnp.float32), [1.0]),
    "jit": (jax.jit(lambda v: v + 0), 1.0),
    "keyword": (lambda v, *, k=1: v, 1),
}


class TestHooks:
    @pytest.mark.parametrize("name", CONVERTERS)
    def test_converters_get_the_value(self, name):
        converter, value = CONVERTERS[name]
        made = struct_with({"x": object}, x=s.field(converter=converter))(value)
        assert type(made.x) is type(converter(value))
        assert repr(made.x) == repr(converter(value))

    def test_several_problems_in_the_order_of_fields(self):
        bad = s.field(validator=lambda v: v > 0)
        with pytest.raises(s.ValidationError) as caught:
            struct_with({"a": int, "b": int}, a=bad, b=s.field(validator=lambda v: v > 0))(-1, -2)
        assert [d.path for d in caught.value.diagnostics] == ["Made.a", "Made.b"]

    def test_what_post_init_assigns_is_validated(self):
        cls = struct_with(
            {"x": int},
            x=s.field(validator=lambda v: v < 5),
            __post_init__=lambda self: setattr(self, "x", self.x + 1),
        )
        assert cls(3).x == 4
        with pytest.raises(s.ValidationError):
            cls(4)

    @pytest.mark.parametrize(
        "default", [[], {}, set(), bytearray(), np.zeros(1)], ids=lambda d: type(d).__name__
    )
    def test_mutable_defaults(self, default):
        with refused(TypeError, "Made.x", "default_factory"):
            struct_with({"x": object}, x=default)
        with refused(TypeError, "Made.x", "default_factory"):
            struct_with({"x": object}, x=s.field(default=default))

    def test_specs_are_hashable_and_their_metadata_is_read_only(self):
        spec = s.field(metadata={"unit": "m"})
        assert {spec: 1}[spec] == 1
        with pytest.raises(TypeError):
            spec.metadata["unit"] = "s"


class TestPostponedAnnotations:
    """This file has postponed annotations throughout."""

    def test_class_variables_init_variables_and_keyword_only(self):
        class A(s.Struct):
            k: ClassVar[int] = 3
            quoted: "ClassVar[int]" = 4  # noqa: UP037
            noted: Annotated[ClassVar[int], "x"] = 5
            x: int
            seed: InitVar[int] = 1
            final: Final[int] = 2
            _: KW_ONLY
            y: "int" = 0  # noqa: UP037

            def __post_init__(self, seed):
                self.x = self.x * seed

        assert list(A.fields()) == ["x", "final", "y"] and (A.k, A.quoted, A.noted) == (3, 4, 5)
        assert A(2, 5, y=1).x == 10 and A.fields()["y"].kw_only

    def test_under_register_class(self):
        @s.register_class
        class A:
            k: ClassVar[int] = 3
            x: int
            seed: InitVar[int] = 2

            def __post_init__(self, seed):
                self.x = self.x * seed

        assert list(A.fields()) == ["x"] and A.k == 3 and A(2).x == 4

    def test_names_imported_inside_a_function(self):
        import typing as hints
        from dataclasses import InitVar as OnlyForInit  # noqa: F401
        from typing import ClassVar  # noqa: F401

        class A(s.Struct):
            k: hints.ClassVar[int] = 3
            x: int = 1

        assert list(A.fields()) == ["x"]

    @pytest.mark.parametrize(
        "annotation", ["ClassVar[int]", "'ClassVar[int]'", Annotated["ClassVar[int]", 1], ClassVar]
    )
    def test_every_form(self, annotation):
        assert list(struct_with({"k": annotation, "x": "int"}, k=3).fields()) == ["x"]


class TestClasses:
    @pytest.mark.parametrize("make", [lambda: Gen[int](1), lambda: GenInt(1, 2), lambda: Gen("x")])
    def test_generics(self, make, tmp_path):
        a = make()
        assert through(a) == a == pickle.loads(pickle.dumps(a)) == copy.copy(a) == copy.deepcopy(a)
        assert s.load(a.export(tmp_path / "a")) == a and type(jax.tree.map(lambda x: x, a)) is type(
            a
        )

    def test_slots(self):
        with refused(TypeError, "Made", "__slots__", ("x",)):
            struct_with({"x": int}, __slots__=("x",))

    def test_abstract_and_protocol_mixins(self):
        class Sized(Protocol):
            size: int

            def area(self) -> int: ...

        class Base(abc.ABC):
            @abc.abstractmethod
            def area(self): ...

        class A(s.Struct, Sized, Base, metaclass=s.StructABCMeta):
            x: int

            def area(self):
                return self.x

        assert A(2).area() == 2 and list(A.fields()) == ["x"] and isinstance(A(2), Base)
        promoted = s.register_class(
            type("B", (Base,), {"__annotations__": {"x": int}, "area": lambda self: self.x})
        )
        assert promoted(3).area() == 3

    def test_a_subclass_overrides_a_kind_and_keeps_the_position(self):
        class A(s.Struct):
            x: int = 1
            y: int = 2

        class B(A):
            x: int = s.field(static=True, default=5)

        assert (
            list(B.fields()) == ["x", "y"]
            and B.static_fields() == ("x",)
            and jax.tree.leaves(B()) == [2]
        )

    def test_diamonds_follow_the_mro(self):
        class A(s.Struct):
            x: int = 1
            y: int = 1

        class B(A):
            x: int = s.field(static=True, default=2)

        class C(A):
            y: int = s.field(static=True, default=3)

        class D(C, B):
            pass

        class E(B, C):
            z: int = 0

        assert D.static_fields() == ("x", "y") == E.static_fields() and (
            D().x,
            D().y,
            E().x,
            E().y,
        ) == (2, 3, 2, 3)
        assert list(E.fields()) == ["x", "y", "z"] and through(D()) == D()

    def test_an_override_without_annotation(self):
        with refused(TypeError, "Plain.step"):

            class Plain(State):
                step = 77

    def test_a_property_with_the_name_of_a_field(self):
        with refused(TypeError, "Below.step"):

            class Below(State):
                @property
                def step(self):
                    return 3

    def test_annotated_plain_parents(self):
        class Mixin:
            tag: str = "m"

        class A(s.Struct, Mixin):
            x: int = 0

        class Parent:
            w: float

        @s.register_class
        class Child(Parent):
            b: float = 0.0

        assert A(tag="n").tag == "n" and list(Child.fields()) == ["w", "b"] and Child(1.0).w == 1.0

    def test_frozen_dataclasses_keep_their_factories(self):
        @s.register_class
        @dataclasses.dataclass(frozen=True)
        class A:
            x: int
            y: list = dataclasses.field(default_factory=list)

        assert A(1).y == [] and A(1).replace(x=2) == A(2)

    def test_below_a_custom_init(self):
        class A(s.Struct):
            x: int

            def __init__(self, text):
                self.x = int(text)

        class B(A):
            pass

        assert B("3").x == 3 and B("3").replace(x=4).x == 4
        with pytest.raises(s.FrozenStructError):
            B("3").x = 1
        with refused(TypeError, "C", "__init__"):

            class C(A):
                y: int

    def test_undeclared_attributes(self):
        cls = struct_with({"x": int}, __post_init__=lambda self: setattr(self, "cache", 1))
        with refused(TypeError, "Made.cache"):
            cls(1)

    def test_a_rederive_that_fails_leaves_the_instance_frozen(self):
        class A(s.Struct):
            items: list
            first: object = s.field(pytree=False, derived=lambda self: self.items[0])

        a = A([1])
        a.items.clear()
        with pytest.raises(IndexError):
            a.rederive()
        with pytest.raises(s.FrozenStructError):
            a.items = [2]

    def test_copies_keep_handles_and_stay_frozen(self):
        class A(s.Struct):
            x: list
            handle: object = s.field(pytree=False)

        a = A([1], object())
        for again in (copy.copy(a), copy.deepcopy(a), jax.tree.map(lambda v: v, a)):
            assert again.handle is a.handle and again == a
            with pytest.raises(s.FrozenStructError):
                again.x = 1
        assert copy.deepcopy(a).x is not a.x and copy.copy(a).x is a.x
        twice = [a, a]
        deep = copy.deepcopy(twice)
        assert deep[0] == a

    @pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
    def test_pickles(self, protocol):
        for a in (State({"w": jnp.ones(2)}, 3), GenInt(1, 2), State(State(1.0)), Reset(np.ones(2))):
            again = pickle.loads(pickle.dumps(a, protocol))
            assert again == a and type(again) is type(a) and hash(again) == hash(a)

    @pytest.mark.parametrize(
        ("a", "b", "equal"),
        [
            (np.array([1], "int32"), np.array([1.0]), False),
            (jnp.array([1, 2]), [1, 2], False),
            (math.nan, float("nan"), True),
            (np.array([math.nan]), np.array([math.nan]), True),
            ([np.ones(2)], type("L", (list,), {})([np.ones(2)]), False),
            (1, True, False),
            (0.0, -0.0, False),
            ((1, 2), (1, 2), True),
            ({"a": np.ones(2)}, {"a": np.ones(2)}, True),
        ],
        ids=lambda v: repr(v)[:30],
    )
    def test_equality(self, a, b, equal):
        assert (State(a) == State(b)) is equal and (State(a) != State(b)) is not equal
        assert not equal or hash(State(a)) == hash(State(b))

    def test_comparisons_that_give_arrays(self):
        class Odd:
            def __eq__(self, other):
                return np.array([True, False])

            __hash__ = None

        assert State(Odd()) != State(Odd()) and State(1) != 1 and State(1) != GenInt(1)

    def test_the_replace_protocol(self):
        changed = getattr(copy, "replace", lambda obj, **changes: obj.__replace__(**changes))(
            State(1.0), step=4
        )
        assert changed == State(1.0, 4) and isinstance(changed, State)
        with refused(TypeError, "State.replace()", "'stp'", "'step'"):
            State(1.0).__replace__(stp=1)

    def test_the_constructor_leaves_nothing_behind(self):
        assert not {name for name in vars(State(1.0)) if "init" in name}
        assert set(State(1.0).to_dict()) == {"params", "step"}

    def test_pattern_matching(self):
        match State(State(1.0), 3):
            case State(State(w), step=3):
                assert w == 1.0
            case _:
                pytest.fail("no match")
        assert State.__match_args__ == ("params", "step")

    def test_weak_references(self):
        a = State(1.0)
        gone = []
        weakref.finalize(a, gone.append, 1)
        assert weakref.ref(a)() is a and weakref.WeakValueDictionary({1: a})[1] is a
        del a
        assert gone == [1]

    @pytest.mark.parametrize(
        "value",
        [
            jnp.ones((1000, 1000)),
            np.arange(10**6),
            list(range(10**5)),
            {i: i for i in range(1000)},
            "x" * 10**6,
            State(np.ones(10**5)),
        ],
        ids=["jax", "numpy", "list", "dict", "text", "struct"],
    )
    def test_repr_is_short(self, value):
        assert len(repr(State(value))) < 500

    def test_repr_never_fails(self):
        seen = []
        jax.jit(lambda a: seen.append(repr(a)) or a)(State({"w": jnp.ones(2)}, 3))
        jax.vmap(lambda a: seen.append(repr(a)) or a)(State(jnp.ones(2), 3))
        assert all("State(params=" in text and "step=3" in text for text in seen)
        cyclic = []
        cyclic.append(cyclic)
        broken = type("Broken", (), {"__repr__": lambda self: 1 / 0})()
        deleted = jnp.ones(2)
        deleted.delete()
        for value in (
            cyclic,
            broken,
            deleted,
            jax.random.key(0),
            jax.ShapeDtypeStruct((2,), "int8"),
            None,
        ):
            assert repr(struct_with({"x": object}, x=s.field(pytree=False))(value)).startswith(
                "Made(x="
            )

    def test_field_names_that_collide(self):
        odd = struct_with({"self": int, "cls": int, "name": int, "other": int})(1, 2, 3, 4)
        assert odd.replace(self=5).self == 5 and through(odd) == odd
        for name in sorted(RESERVED_NAMES):
            with refused(TypeError, f"Made.{name}"):
                struct_with({name: int})
