"""What a user's editor must see of Structs; read by the type checkers, never run.

Every line with an ignore comment must be flagged by that checker: an ignore that is not needed is itself an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, assert_type

import jax

import neuralqx_struct as s

T = TypeVar("T")


class State(s.Struct):
    w: list[float]
    step: int = s.field(static=True, default=0)
    tag: str = s.field(static=True, kw_only=True, default="run")


state = State([1.0], 3, tag="a")
assert_type(state.w, list[float])
assert_type(state.step, int)
assert_type(state.replace(step=4), State)
assert_type(State.load("ckpt"), State)
assert_type(State.from_state_dict(state.to_state_dict()), State)
assert_type(state.to_state_dict(), dict[str, Any])
assert_type(state.export(Path("ckpt"), overwrite=True), Path)
assert_type(state.tree_size(), int)
assert_type(State.fields(), OrderedDict[str, s.FieldSpec])
assert_type(State.node_fields(), tuple[str, ...])
state.rederive()

State()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
State([1.0], "three")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
State([1.0], 3, "positional")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
State([1.0], stpe=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
state.step = 5  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
state.nope  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


# --- every form of field() -------------------------------------------------------------------------------------------


def double(value: int) -> int:
    return 2 * value


class Forms(s.Struct):
    plain: jax.Array
    declared: int = s.field()
    constant: float = 0.5
    default: int = s.field(default=1)
    factory: dict[str, int] = s.field(default_factory=dict)
    converted: int = s.field(default=1, converter=double)
    parsed: float = s.field(static=True, default="1", converter=float)
    checked: int = s.field(default=1, validator=lambda value: value > 0)
    checks: int = s.field(
        default=1, validator=[lambda value: value > 0, lambda self, value: value < self.default]
    )
    opaque: object = s.field(pytree=False, default=None)
    handle: list[str] = s.field(pytree=False, reset=True, default_factory=list)
    described: int = s.field(default=1, doc="how many", metadata={"tags": ["x"]}, aliases=("was",))
    hidden: int = s.field(default=1, repr=False, compare=False, serialize=False)
    later: int = s.field(init=False)
    area: int = s.field(static=True, init=False, derived=lambda self: self.default**2)
    norm: float = s.field(pytree=False, derived=lambda: 1.0)
    path: Path = s.field(static=True, default="x", converter=Path)
    stripped: str = s.field(static=True, default="", converter=str.strip)
    mode: s.FieldKind = s.field(static=True, default="node", converter=s.FieldKind)
    rounded: int = s.field(static=True, default=1.2, converter=round)
    keyword: str = s.field(kw_only=True)

    def __post_init__(self) -> None:
        # As for every frozen dataclass: it works at run time, the checkers cannot know.
        self.later = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


x: jax.Array = jax.numpy.float32(1.0)
forms = Forms(x, declared=3, keyword="k")
assert_type(forms.area, int)
assert_type(forms.later, int)
assert_type(forms.parsed, float)
assert_type(forms.factory, dict[str, int])
Forms(x, declared=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Forms(x, 3, keyword="k", later=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Forms(x, 3, keyword="k", area=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Wrong(s.Struct):
    a: int = s.field(default="one")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    b: int = s.field(default_factory=str)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


s.field(defualt=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
s.field(default_factory=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
s.field(static="yes")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


class Settings(s.Struct):
    width: int = s.field(static=True, converter=int)


# Pyright reads the type of the argument off the converter; mypy takes the field's own.
Settings("4")  # type: ignore[arg-type]
Settings([4])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# --- pseudo-fields and keyword-only classes --------------------------------------------------------------------------


class Pseudo(s.Struct):
    x: float
    scale: InitVar[float]
    count: ClassVar[int] = 0
    _: KW_ONLY
    name: str = "p"

    def __post_init__(self, scale: float) -> None: ...


assert_type(Pseudo(1.0, 2.0, name="q").x, float)
assert_type(Pseudo.count, int)
Pseudo(1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Pseudo(1.0, 2.0, "q")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Named(s.Struct, kw_only=True):
    a: int = 0
    b: str


assert_type(Named(b="x").b, str)
Named(1, "x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# --- inheritance, generics, abstract classes, protocols --------------------------------------------------------------


class Child(State):
    extra: bool = False


child = Child([1.0], 3, True)
assert_type(child.replace(extra=False), Child)
assert_type(Child.load("ckpt"), Child)
Child(extra=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Box(s.Struct, Generic[T]):
    value: T
    label: str = s.field(static=True, default="")


box = Box(1.5)
assert_type(box, Box[float])
assert_type(box.value, float)
assert_type(box.replace(label="b"), Box[float])
assert_type(Box[int](1).value, int)
Box[int]("one")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Model(s.Struct, metaclass=s.StructABCMeta):
    width: int

    @abstractmethod
    def energy(self) -> float: ...


class Plain(ABC):
    @abstractmethod
    def area(self) -> float: ...


class HasArea(Protocol):
    def area(self) -> float: ...


class Disc(s.Struct, Plain, metaclass=s.StructABCMeta):
    radius: float

    def area(self) -> float:
        return self.radius


def measure(shape: HasArea) -> float:
    return shape.area()


measure(Disc(2.0))
assert_type(Disc(2.0).replace(radius=3.0), Disc)
Model(3)  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]


# --- code about any Struct --------------------------------------------------------------------------------------------

S = TypeVar("S", bound=s.Struct)


def made(cls: type[S], **values: Any) -> S:
    return cls(**values).replace(**values)


assert_type(made(State, w=[1.0]), State)


# --- introspection ---------------------------------------------------------------------------------------------------

assert_type(s.fields(State), OrderedDict[str, s.FieldSpec])
assert_type(s.fields(state)["step"].kind, s.FieldKind)
assert_type(s.static_fields(state), tuple[str, ...])
assert_type(s.fields(State)["step"].metadata, Mapping[str, Any])
hash(state), state == state.replace(step=3)

match state:
    case State(w, step):
        assert_type(w, list[float])
        assert_type(step, int)
