"""What a user's editor must see of promoted and registered classes; read by the type checkers, never run."""

from typing import assert_type

import neuralqx_struct as s


@s.register_class
class Point:
    x: float
    y: float = 0.0
    name: str = s.field(static=True, default="p")

    def norm(self) -> float:
        return self.x + self.y


point = Point(1.0, y=2.0)
assert_type(point, Point)
assert_type(point.norm(), float)
Point()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Point("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
point.x = 2.0  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


@s.register_class(name="Line")
class Segment:
    length: float
    tag: str = s.field(kw_only=True, default="")


assert_type(Segment(1.0, tag="a"), Segment)
Segment(length="long")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@s.dataclass
class Rate:
    lr: float = 0.1


assert_type(Rate(lr=0.2).lr, float)
Rate(rl=0.2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# No checker can know of methods that a decorator adds. The ways out: inherit from Struct, or say what it is.
point.replace(x=2.0)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
assert isinstance(point, s.Struct)
moved: Point = point.replace(x=2.0)
