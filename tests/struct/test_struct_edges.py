"""What happens at the edges of a Struct's life: constructors called again, strange bases, hooks that meet tracers."""

import abc
import copy
import dataclasses
import functools
import inspect
import pickle
import threading
import typing
from dataclasses import KW_ONLY, InitVar
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.references import alias_class
from tests.builders import bounded, every, refused


class Plain(s.Struct):
    x: int
    n: int = s.field(static=True, default=1)


class Converting(s.Struct):
    x: int = s.field(converter=int)


class Written(s.Struct):
    x: int

    def __init__(self, x):
        self.x = x


class Idle(s.Struct):
    x: int = 3

    def __init__(self, x=None):
        pass


class Below(Plain):
    def __init__(self, x):
        super().__init__(x, n=2)


class TestConstructedOnce:
    @pytest.mark.parametrize(
        "cls", [Plain, Converting, Written, Idle, Below], ids=lambda cls: cls.__name__
    )
    @pytest.mark.parametrize("rebuilt", [False, True])
    def test_init_again(self, cls, rebuilt):
        a = jax.tree.map(lambda x: x, cls(3)) if rebuilt else cls(3)
        with refused(s.FrozenStructError, "NQX601", cls.__name__, "__init__"):
            a.__init__(2)
        assert a == cls(3) and jax.tree.leaves(a) == [3]
        with pytest.raises(s.FrozenStructError):
            cls.__init__(a, 2)
        assert a.replace(x=2).x == 2

    def test_a_new_that_leaves_marks_is_no_second_call(self):
        class Cached(s.Struct):
            x: int

            def __new__(cls, *args, **kwargs):
                new = super().__new__(cls)
                vars(new)["mark"] = 1
                return new

        assert Cached(2).x == 2
        with pytest.raises(s.FrozenStructError):
            Cached(2).__init__(3)


class TestInitVars:
    def test_they_travel_through_super_init(self):
        class A(s.Struct):
            x: int
            seed: InitVar[int]
            scale: InitVar[int] = 10

            def __post_init__(self, seed, scale):
                self.x = self.x * scale + seed

        class B(A):
            y: int

            def __init__(self, y):
                super().__init__(1, seed=5)
                self.y = y

        class C(B):
            def __init__(self):
                super().__init__(7)

        assert (B(3).x, B(3).y) == (15, 3) and (C().x, C().y) == (15, 7)
        assert B(3).replace(y=4, seed=0).x == 150
        assert not any("init" in name for name in vars(B(3)))

    def test_an_init_that_gives_none(self):
        class A(s.Struct):
            x: int
            seed: InitVar[int]

            def __init__(self, x):
                self.x = x

            def __post_init__(self, seed): ...

        with refused(TypeError, "A", "InitVar", "seed", "super().__init__"):
            A(1)

    def test_a_factory_is_refused(self):
        with refused(TypeError, "A.x", "InitVar"):

            class A(s.Struct):
                x: InitVar[list] = s.field(default_factory=list)

    def test_keyword_only_ones(self):
        class A(s.Struct):
            x: int
            _: KW_ONLY
            scale: InitVar[int] = 2

            def __post_init__(self, scale):
                self.x = self.x * scale

        assert A(1).x == 2 and A(1, scale=3).x == 3
        with pytest.raises(TypeError, match="A.__init__"):
            A(1, 3)

    def test_the_order_of_declaration(self):
        class A(s.Struct):
            a: InitVar[int]
            b: InitVar[int] = 2
            _: KW_ONLY
            x: int = 0

            def __post_init__(self, a, b):
                self.x = 10 * a + b

        assert A(3).x == 32 and A(b=4, a=3).x == 34


class TestPromotedDataclasses:
    def test_the_fields_of_parents(self):
        @dataclasses.dataclass
        class A:
            x: int
            y: list = dataclasses.field(default_factory=list)

        @s.register_class
        @dataclasses.dataclass
        class B(A):
            z: int = dataclasses.field(default=3, compare=False)

        assert list(B.fields()) == ["x", "y", "z"] and B(1) == B(1, [], 4) and B(1).y is not B(1).y
        assert B(1) != B(2) and hash(B(1)) == hash(B(1)) and repr(B(1)) == "B(x=1, y=[], z=3)"
        assert jax.tree.map(lambda v: v + 1, B(1, [2])).y == [3]

    def test_frozen_ones_and_what_somebody_wrote(self):
        @s.register_class
        @dataclasses.dataclass(frozen=True)
        class A:
            x: int = 1

            def __repr__(self):
                return "mine"

            def __post_init__(self):
                assert self.x

        assert (
            repr(A(2)) == "mine"
            and A(2) == A(2)
            and A(1).replace(x=3).x == 3
            and A(2).__replace__(x=4).x == 4
        )

    def test_an_own_init(self):
        @s.register_class
        @dataclasses.dataclass(init=False)
        class A:
            x: int

            def __init__(self, text):
                self.x = int(text)

        assert A("7").x == 7

    def test_init_vars_and_kw_only(self):
        @dataclasses.dataclass(kw_only=True)
        class A:
            seed: InitVar[int] = 1
            x: int = 0

        @s.register_class
        @dataclasses.dataclass
        class B(A):
            y: int = 0

            def __post_init__(self, seed):
                self.x = seed

        assert B(5).y == 5 and B(5).x == 1 and B(seed=4).x == 4

    @pytest.mark.parametrize("options", [{"slots": True}, {"slots": True, "frozen": True}])
    def test_slots(self, options):
        @dataclasses.dataclass(**options)
        class A:
            x: int

        with refused(TypeError, "A", "slots=True"):
            s.register_class(A)

    def test_builtin_bases(self):
        with refused(TypeError, "D", "dict"):

            class D(s.Struct, dict):
                x: int

    def test_strange_metaclasses(self):
        class Meta(type):
            pass

        class A(metaclass=Meta):
            x: int

        with refused(TypeError, "Meta", "register_pytree_type"):
            s.register_class(A)

    def test_other_errors_of_class_creation_pass(self):
        with pytest.raises(TypeError, match="MRO"):
            s.StructMeta("X", (s.Struct, Plain), {"__module__": __name__})


class TestPlainBases:
    def test_annotations_of_a_mixin_are_fields(self):
        class Named:
            name: str = "n"
            size: int

        class A(Named, s.Struct):
            x: int = 0
            size: int = 4

        class B(A):
            y: int = 1

        assert list(A.fields()) == ["name", "size", "x"] and (A("m").name, A().name, A(x=3).x) == (
            "m",
            "n",
            3,
        )
        b = jax.tree.map(lambda v: v, B("m", y=2))
        assert list(B.fields()) == ["name", "size", "x", "y"] and (b.name, b.y, b.size) == (
            "m",
            2,
            4,
        )

    def test_what_a_nearer_class_defines_is_no_field(self):
        class Sized:
            size: int

        class A(Sized, s.Struct):
            x: int

            @property
            def size(self):
                return self.x * 2

        assert list(A.fields()) == ["x"] and A(2).size == 4

    def test_names_of_the_api(self):
        class Mixin:
            fields: int

        with refused(TypeError, "Mixin.fields"):

            class A(Mixin, s.Struct):
                x: int

    def test_abstract_ones(self):
        class Base(abc.ABC):
            lr: float

            @abc.abstractmethod
            def step(self): ...

        class A(s.Struct, Base, metaclass=s.StructABCMeta):
            def step(self):
                return self.lr

        assert A(0.5).step() == 0.5


class TestErrorsOfProperties:
    def test_its_own_error_is_seen(self):
        class A(s.Struct):
            x: object

            @property
            def inner(self):
                return self.x.nothing

            @functools.cached_property
            def cached(self):
                return self.x.missing

        for name, missing in (("inner", "nothing"), ("cached", "missing")):
            with pytest.raises(AttributeError, match=f"'int'.*'{missing}'"):
                getattr(A(1), name)
        with pytest.raises(AttributeError, match="'A'.*'nope'"):
            A(1).nope
        assert not hasattr(A(1), "inner") and getattr(A(1), "nope", 3) == 3


class TestTracing:
    @pytest.mark.parametrize("converter", [float, int, bool, np.asarray], ids=lambda f: f.__name__)
    def test_converters_that_need_values(self, converter):
        class Box(s.Struct):
            x: object = s.field(converter=converter)

        with pytest.raises(jax.errors.JAXTypeError) as caught:
            jax.jit(lambda v: Box(v).x)(1)
        assert caught.value.__notes__[0] == "while converting Box.x"
        assert (
            "JAX is tracing" in caught.value.__notes__[1]
            and "jnp.asarray" in caught.value.__notes__[1]
        )
        with pytest.raises(jax.errors.JAXTypeError):
            jax.jit(lambda v: Box(1).replace(x=v).x)(1)

    def test_derived_fields_that_need_values(self):
        class Norm(s.Struct):
            w: object
            norm: float = s.field(static=True, derived=lambda self: float(jnp.sum(self.w)))

        with pytest.raises(jax.errors.ConcretizationTypeError) as caught:
            jax.jit(lambda p: p.norm)(Norm(jnp.ones(2)))
        assert (
            isinstance(caught.value, s.StructError)
            and caught.value.diagnostics[0].path == "Norm.norm"
        )
        assert isinstance(caught.value.__cause__, jax.errors.ConcretizationTypeError)
        assert "jax.numpy" in caught.value.diagnostics[0].hint

    def test_derived_fields_of_structs_inside_that_need_values(self):
        class Norm(s.Struct):
            w: object
            norm: float = s.field(static=True, derived=lambda self: float(jnp.sum(self.w)))

        class Outer(s.Struct):
            inner: Norm
            twice: float = s.field(static=True, derived=lambda self: 2 * self.inner.norm)

        assert jax.jit(lambda p: Outer(p))(Norm(jnp.ones(2))).twice == 4.0
        with refused(s.StructError, "NQX416", "Norm.norm"):
            jax.jit(lambda p: Outer(p).twice)(Norm(jnp.ones(2)))

    def test_static_values(self):
        with refused(s.ValidationError, "NQX110", "Plain.n"):
            jax.jit(lambda v: Plain(1, n=v).x)(1)

    def test_saving(self, tmp_path):
        with refused(s.SerializationError, "NQX430", "$.x"):
            jax.jit(lambda v: Plain(v).export(tmp_path / "a"))(1)

    def test_a_derived_static_value_of_tracers_waits(self):
        class Total(s.Struct):
            w: object
            total: object = s.field(pytree=False, derived=lambda self: jnp.sum(self.w))
            shape: tuple = s.field(static=True, derived=lambda self: self.w.shape)

        assert float(jax.jit(lambda w: Total(w).total)(jnp.ones(3))) == 3.0
        assert Total(jnp.ones(3)).shape == (3,)


class TestOpaqueEquality:
    @pytest.mark.parametrize(
        ("verdict", "equal"),
        [
            (True, True),
            (np.True_, True),
            (np.False_, False),
            (np.array([True, True]), False),
            (NotImplemented, False),
        ],
    )
    def test_what_its_own_comparison_says(self, verdict, equal):
        class Handle:
            def __eq__(self, other):
                return verdict

            __hash__ = object.__hash__

        class A(s.Struct):
            x: int
            handle: object = s.field(pytree=False)

        assert (A(1, Handle()) == A(1, Handle())) is equal
        assert (A(Handle(), None) == A(Handle(), None)) is equal

    @pytest.mark.parametrize(
        "make", [lambda: {1: "a", "b": np.ones(2)}, lambda: [np.ones(2)]], ids=["dict", "list"]
    )
    def test_what_cannot_be_decided_is_not_equal(self, make):
        class A(s.Struct):
            handle: object = s.field(pytree=False)

        held = make()
        assert A(held) == A(held) and A(make()) != A(make())


class TestFill:
    def test_names_that_no_struct_has(self):
        payload = Plain(1).to_state_dict()
        with refused(s.SerializationError, "NQX415", "'m'") as caught:
            Plain.from_state_dict(payload, fill={"m": 1})
        assert caught.value.diagnostics[0].hint
        assert Plain.from_state_dict(payload, fill={"n": 5}).n == 1


BAD_REFS = [
    "",
    ":",
    ":x",
    "a:",
    "a:b:c",
    ".:x",
    "..a:b",
    "a b:c",
    "1a:b",
    "a:1b",
    3,
    None,
    b"os:PathLike",
]


@every("ref", BAD_REFS)
def test_malformed_references(ref):
    with refused(s.SerializationError, "NQX501", repr(ref)) as caught:
        s.resolve_class(ref)
    assert "package.module:Class" in caught.value.diagnostics[0].hint
    with refused(s.SerializationError, "NQX501"):
        s.resolve_pytree_spec(ref)
    with refused(s.SerializationError, "NQX501"):
        alias_class(ref, Plain)


def test_the_reference_of_a_schema_that_is_not_loaded():
    with refused(s.SerializationError, "NQX501", "lab.x@3:State") as caught:
        s.resolve_class("lab.x@3:State")
    assert "load the schema" in caught.value.diagnostics[0].hint


def test_a_class_that_moved_and_was_renamed(tmp_path):
    old = Plain(3).export(tmp_path / "old")
    manifest = old / "manifest.json"
    text = manifest.read_text().replace(f"{__name__}:Plain", "lab.gone:Former")
    manifest.write_text(text)
    from neuralqx_struct import bundle

    bundle.seal(old)
    with refused(s.UntrustedError, "NQX501", "lab.gone:Former", "alias_class"):
        s.load(old)
    alias_class("lab.gone:Former", Plain)
    assert s.load(old) == Plain(3) and s.resolve_class("lab.gone:Former") is Plain


class TestRegistering:
    @pytest.mark.parametrize("what", [3, "Edge", None])
    def test_what_is_no_class(self, what):
        with refused(TypeError, "register_pytree_type()", repr(what)):
            s.register_pytree_type(
                what, flatten=lambda n: ([], None), unflatten=lambda aux, c: None
            )
        with refused(TypeError, "register_attrs_type()"):
            s.register_attrs_type(what)

    def test_what_somebody_else_registered(self):
        @jax.tree_util.register_dataclass
        @dataclasses.dataclass
        class Known:
            x: int

        with refused(ValueError, "Known"):
            s.register_attrs_type(Known, node_fields=("x",))
        with refused(ValueError, "builtins:dict"):
            s.register_pytree_type(
                dict,
                flatten=lambda d: ([], None),
                unflatten=lambda aux, c: {},
                flatten_with_keys=lambda d: ([], None),
            )

    def test_attributes_again(self):
        Edge = type("Edge", (), {"__module__": __name__})
        for _ in range(2):
            assert s.register_attrs_type(Edge, node_fields=["flux"], static_fields=["n"]) is Edge
        with refused(ValueError, "Edge"):
            s.register_attrs_type(Edge, node_fields=["flux"])

    def test_one_name_is_no_collection(self):
        with refused(TypeError, "Edge", "node_fields", "'flux'"):
            s.register_attrs_type(type("Edge", (), {}), node_fields="flux")


@pytest.mark.parametrize(
    "arguments", [{"metadata": 3}, {"validator": 3}, {"aliases": [3]}, {"aliases": 3}], ids=repr
)
def test_arguments_of_field_that_make_no_sense(arguments):
    with refused(TypeError, "Model: field()"):

        class Model(s.Struct):
            x: int = s.field(**arguments)


def test_post_init_that_needs_values_under_tracing():
    class A(s.Struct):
        x: int

        def __post_init__(self):
            self.x = max(self.x, 0)

    assert A(-1).x == 0
    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        jax.jit(lambda v: A(v).x)(1.0)
    assert (
        caught.value.__notes__[0] == "while running A.__post_init__"
        and "tracing" in caught.value.__notes__[1]
    )


class TestHooksOfOneValue:
    """Classes whose hooks all look at one value alone take the short way through the constructor."""

    def test_each_hook_runs_once(self):
        seen = []

        class Noted(s.Struct):
            x: float = s.field(
                converter=lambda x: (seen.append("convert x"), float(x))[1],
                validator=lambda x: seen.append("check x"),
            )
            n: int = s.field(
                static=True, default_factory=lambda: seen.append("make n") or 3, converter=int
            )
            log: object = s.field(
                pytree=False, default=None, validator=lambda log: seen.append("check log")
            )

        made = Noted("1")
        assert (made.x, made.n, made.log) == (1.0, 3, None)
        assert seen == ["convert x", "make n", "check x", "check log"]

    @pytest.mark.parametrize("static", [1.5, (1, 2), float("nan")])
    def test_static_values_with_keys_of_their_own(self, static):
        calls = []

        class Odd(s.Struct):
            n: object = s.field(
                static=True,
                converter=lambda n: (calls.append(n), n)[1],
                validator=lambda n: np.True_,
            )

        assert Odd(static) == Odd(static) and len(calls) == 2

    def test_every_failure_is_reported(self):
        class Two(s.Struct):
            a: float = s.field(converter=float, validator=lambda a: a > 0)
            b: float = s.field(
                converter=float, validator=[lambda b: np.bool_(b > 0), lambda b: jnp.asarray(b < 9)]
            )

        with pytest.raises(s.ValidationError) as caught:
            Two(-1, 10)
        assert [d.path for d in caught.value.diagnostics] == ["Two.a", "Two.b"]
        assert Two(1, 2).b == 2.0

    def test_errors_of_hooks_say_whose_they_are(self):
        def refuse(_value):
            raise KeyError("no")

        class A(s.Struct):
            a: float = s.field(converter=float)
            b: float = s.field(converter=float, validator=refuse)

        with pytest.raises(ValueError) as caught:
            A(1, "x")
        assert caught.value.__notes__ == ["while converting A.b"]
        with pytest.raises(KeyError) as caught:
            A(1, 2)
        assert caught.value.__notes__ == ["while validating A.b"]

    def test_under_tracing_concrete_values_are_still_checked(self):
        class Positive(s.Struct):
            a: object = s.field(converter=lambda a: a, validator=lambda a: jnp.all(a > 0))

        with pytest.raises(s.ValidationError):
            jax.jit(lambda x: Positive(np.float32(-1)).a + x)(1.0)
        assert jax.jit(lambda x: Positive(x).a)(-1.0) == -1.0


def test_replacing_statics_and_opaque_objects():
    class Mixed(s.Struct):
        x: object
        n: object = s.field(static=True, default=1)
        m: object = s.field(static=True, default=2)
        log: object = s.field(pytree=False, default=None)
        cache: object = s.field(pytree=False, default=())

    handle = object()
    changed = Mixed(0).replace(m=1.5, log=handle)
    assert (changed.x, changed.n, changed.m, changed.log, changed.cache) == (0, 1, 1.5, handle, ())
    assert changed == Mixed(0, 1, 1.5, handle) and jax.tree.structure(
        changed
    ) == jax.tree.structure(Mixed(0, 1, 1.5, handle))
    assert changed.replace(log=None, m=2, n=True).replace(n=1) == Mixed(0)
    with refused(s.ValidationError, "NQX110", "Mixed.n"):
        changed.replace(n=[1], log=None)


def test_a_copy_has_the_reset_fields_of_its_original():
    class Cached(s.Struct):
        x: object
        cache: dict = s.field(pytree=False, reset=True, default_factory=dict)
        twice: float = s.field(static=True, derived=lambda self: self.x * 2)

    first = Cached(2.0)
    first.cache["a"] = 1
    again = copy.copy(first)
    assert again == first and again.cache is first.cache and again.twice == 4.0
    assert "cache" not in vars(copy.copy(jax.tree.map(lambda x: x, first)))


def test_mismatching_opaque_objects_are_told_by_field():
    class Logged(s.Struct):
        x: object
        log: object = s.field(pytree=False)

    a, b = Logged(1, object()), Logged(1, object())
    with pytest.raises(ValueError, match=r"'log'.*object.*reset=True"):
        jax.tree.map(lambda x, y: x, a, b)
    with pytest.raises(ValueError, match=r"'log'.*reset=True"):
        jax.tree.map(lambda x, y: x, a, a.replace(log=object()))


def test_the_signature_shows_that_a_factory_makes_a_default():
    class Made(s.Struct):
        x: int
        y: list = s.field(default_factory=list)
        z: dict = s.field(default_factory=dict, kw_only=True)
        n: int = s.field(static=True, default=3)

    assert str(inspect.signature(Made)).startswith("(x: ") and "y: 'list' = <factory>" in str(
        inspect.signature(Made)
    ).replace("y: list", "y: 'list'")
    assert repr(inspect.signature(Made).parameters["z"].default) == "<factory>"
    assert inspect.signature(Made).parameters["n"].default == 3
    assert (Made(1).y, Made(1).z) == ([], {})


def test_what_vars_shows():
    value = Plain(1)
    value.x  # fields become attributes when the first of them is read
    assert vars(value).keys() == {"_nqx_pair", *s.fields(Plain)}


class TestSharded:
    """Leaves that lie on four devices."""

    @staticmethod
    def make(value=1.0):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("d",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
        return Plain(jax.device_put(jnp.full((8, 2), value).at[7, 1].set(jnp.nan), sharding))

    def test_repr_and_equality(self):
        a, b = self.make(), self.make()
        assert len(a.x.sharding.device_set) == 4
        assert "float32[8, 2]" in repr(a) and len(repr(a)) < 200
        assert a == b and hash(a) == hash(b) and a != self.make(2.0)
        assert a == Plain(np.asarray(a.x)) and hash(a) == hash(Plain(np.asarray(a.x)))
        assert jax.jit(lambda p: p)(a) == a

    def test_saving(self, tmp_path):
        a = self.make()
        assert s.load(a.export(tmp_path / "sharded")) == a
        back = Plain.load(tmp_path / "sharded", shardings=jax.tree.map(lambda x: x.sharding, a))
        assert back == a and back.x.sharding == a.x.sharding


def test_structs_are_printed_while_jax_runs(capfd):
    @jax.jit
    def run(value):
        jax.debug.print("got {}", value)
        return value

    assert run(Plain(jnp.arange(2))) == Plain(jnp.arange(2))
    jax.effects_barrier()
    assert "got Plain(" in capfd.readouterr().out


def test_functions_that_close_over_structs_are_converted():
    def loss(x, value):
        function, held = jax.closure_convert(lambda y: jnp.sum(value.x * y), x)
        return function(x, *held)

    grad = jax.jit(jax.grad(loss, argnums=1))(jnp.ones(2), Plain(jnp.array([1.0, 2.0])))
    assert grad == Plain(jnp.ones(2))


def test_annotated_fields_of_every_kind():
    class Noted(s.Struct):
        x: Annotated[jax.Array, "a node"]
        n: Annotated[int, "static"] = s.field(static=True, default=1)
        log: "Annotated[object, 'opaque']" = s.field(pytree=False, default=None)

    value = Noted(jnp.ones(2))
    assert (
        s.node_fields(Noted) == ("x",)
        and s.static_fields(Noted) == ("n",)
        and s.opaque_fields(Noted) == ("log",)
    )
    replace = getattr(copy, "replace", lambda obj, **changes: obj.__replace__(**changes))
    assert replace(value, n=2) == value.replace(n=2) != value
    with refused(TypeError, "Noted.replace()", "'m'"):
        replace(value, m=2)
    assert typing.get_type_hints(Noted)["n"] is int


class TestWrittenInit:
    def test_a_decorator_around_it(self):
        class A(s.Struct):
            x: int = s.field(validator=lambda x: x > 0)

            def __init__(self, x):
                self.x = x

        written = A.__init__
        A.__init__ = functools.wraps(written)(lambda self, *args: written(self, *args))
        with pytest.raises(s.FrozenStructError):
            A(1).x = 2
        with pytest.raises(s.ValidationError):
            A(-1)

        class B(A):
            def __init__(self):
                super().__init__(3)

        assert B() == B() and jax.tree.leaves(B()) == [3]

    def test_converters_see_what_it_assigns(self):
        class A(s.Struct):
            x: int = s.field(converter=int)
            y: int = s.field(converter=int, default="7")

            def __init__(self, x):
                self.x = x

        assert A("3") == A("3").replace() == A(3) and (A("3").x, A("3").y) == (3, 7)
        with pytest.raises(ValueError, match="'three'") as caught:
            A("three")
        assert caught.value.__notes__ == ["while converting A.x"]

    def test_one_that_fails_may_run_again(self):
        class A(s.Struct):
            x: int

            def __init__(self, x):
                self.x = 10 // x

        a = object.__new__(A)
        with pytest.raises(ZeroDivisionError):
            a.__init__(0)
        a.__init__(5)
        assert a == A(5) and "_nqx_in_init" not in vars(a)


Size = int  # the annotations of Hinted name it as text


class Hinted(s.Struct):
    x: "Size"
    scale: "InitVar[Size]" = 2
    plain: InitVar[int] = 3
    n: "Size | None" = s.field(static=True, default=None)

    def __post_init__(self, scale, plain): ...


def test_type_hints_of_the_constructor():
    hints = typing.get_type_hints(Hinted.__init__)
    assert (hints["x"], hints["plain"], hints["n"], hints["return"]) == (
        int,
        int,
        int | None,
        type(None),
    )
    assert list(inspect.signature(Hinted).parameters) == ["x", "scale", "plain", "n"]
    assert "_nqx_make" not in globals() and Hinted.__init__.__qualname__ == "Hinted.__init__"


class Locked(s.Struct):
    x: int
    lock: object = s.field(pytree=False, reset=True, default_factory=threading.Lock)
    kept: object = s.field(pytree=False, reset=True, default=None, serialize=True)


def test_pickles_leave_out_what_is_reset():
    a = Locked(1, kept="k")
    b = pickle.loads(pickle.dumps(a))
    assert a == b and a.lock is not b.lock and b.kept == "k" and not b.lock.locked()
    assert copy.copy(a).lock is a.lock and copy.deepcopy(a).lock is a.lock


def test_a_promoted_generic_class_stays_generic():
    T, Ts = typing.TypeVar("T"), typing.TypeVarTuple("Ts")

    @s.register_class
    class Box(typing.Generic[T]):
        x: T

    @s.register_class
    class Many(typing.Generic[*Ts]):
        x: int

    class Ints(Box[int]):
        y: int = 2

    assert Box[int](1) == Box(1) and Box.__parameters__ == (T,) and Many[int, str](1).x == 1
    assert Ints(1).y == 2 and Ints.__parameters__ == ()

    class Below(Box[T]):
        z: int = 0

    assert jax.tree.leaves(Below[str](1, 5)) == [1, 5]


def many(count, **options):
    names = [f"f{number}" for number in range(count)]
    body = {name: s.field(static=True, **options) for name in names}
    body |= {"__annotations__": dict.fromkeys(names, int), "__module__": __name__}
    return type(s.Struct)("Many", (s.Struct,), body)


def test_a_class_of_very_many_fields():
    count = 30_000
    with bounded():
        Many = many(count)
        value = Many(**{f"f{number}": number for number in range(count)})
        assert value.f7 == 7 and value.replace(f7=8).f7 == 8
        assert value == Many(*range(count)) and hash(value) == hash(Many(*range(count)))


def test_arguments_of_many_fields_are_bound_as_those_of_few():
    few, lots = many(3, default=1), many(600, default=1)
    for cls in (few, lots):
        assert cls(2, f2=3).to_dict() == {**dict.fromkeys(cls.fields(), 1), "f0": 2, "f2": 3}
        shown = inspect.signature(cls)
        assert list(shown.parameters) == list(cls.fields())
        assert shown.parameters["f2"].default == 1
        for wrong in ({"f3000": 1}, {"f0": 1}):
            with pytest.raises(TypeError, match="f3000" if "f3000" in wrong else "f0"):
                cls(5, **wrong)
        with pytest.raises(s.FrozenStructError):
            cls().__init__(3)
    with pytest.raises(TypeError, match="'f0'"):
        many(600)()

    class Below(lots):
        def __init__(self, x):
            super().__init__(f1=x)

    assert Below(4).f1 == 4
