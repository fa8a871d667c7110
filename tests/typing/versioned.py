"""What a user's editor must see of classes that are versions of a schema; read by the type checkers, never run."""

from typing import assert_type

import neuralqx_struct as s


class TrainState(
    s.Struct,
    schema="lab.train_state",
    version=2,
    migrations=[s.steps.migration(1, [s.steps.rename(field="lr", to="rate")])],
):
    rate: float
    step: int = 0


class Frozen(TrainState, kw_only=True, schema="lab.frozen"):
    note: str


state = TrainState(0.1, step=3)
assert_type(state.replace(step=4), TrainState)
assert_type(TrainState.load("ckpt"), TrainState)
TrainState(rat=0.1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Frozen(0.1, note="x")
