"""What a user's editor must see; read by the type checkers, never run.

Every line with an ignore comment must be flagged: an ignore that is not needed is itself an error.
"""

from typing import assert_type

import neuralqx_struct as s


class State(s.Struct):
    w: list[float]
    step: int = s.field(static=True, default=0)
    tag: str = s.field(static=True, kw_only=True, default="run")


state = State([1.0], 3, tag="a")
assert_type(state.step, int)
assert_type(state.replace(step=4), State)
assert_type(State.load("ckpt"), State)

State()  # pyright: ignore[reportCallIssue]
State([1.0], "three")  # pyright: ignore[reportArgumentType]
State([1.0], 3, "positional")  # pyright: ignore[reportCallIssue]
state.step = 5  # pyright: ignore[reportAttributeAccessIssue]
state.nope  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
