"""What a user's editor must see of the functions; read by the type checkers, never run."""

from datetime import timedelta
from pathlib import Path
from typing import Any, assert_type

import neuralqx_struct as s
from neuralqx_struct.bundle.writing import PendingBundle
from neuralqx_struct.evolution.changes import Change
from neuralqx_struct.schema.model import Document
from neuralqx_struct.tools.inspection import Inspection
from neuralqx_struct.trees import Definition, State


class Net(s.Struct):
    w: float
    b: float = 0.0


net = Net(1.0)


def product(net: Net, x: float) -> float:
    return net.w * x


# --- saving ----------------------------------------------------------------------------------------------------------

assert_type(
    s.export(net, "ckpt", overwrite=True, store="npz", compress=True, metadata={"a": 1}), Path
)
assert_type(s.export(net, "ckpt", store="orbax", asynchronous=True), PendingBundle)
assert_type(net.export("ckpt", store="orbax", asynchronous=True).wait(), Path)
assert_type(net.export("ckpt", store="orbax"), Path)
kept = s.replay(product, net, 2.0)
assert_type(net.export("ckpt", replay={"product": kept}), Path)
assert_type(s.replayed("ckpt", rtol=1e-6).equal, bool)
run = s.Series("run", keep_last=3, keep_best=("energy", "min"), keep_every=1000)
assert_type(run.save(1, net, {"energy": -1.5}, overwrite=True), Path)
assert_type(run.save(1, net, asynchronous=True), PendingBundle)
assert_type(run.steps(), list[int])
assert_type(run.best(), int | None)
assert_type(run.load("best", load_cls=Net, verify=False), Net)
assert_type(run.load(17), Any)


class Batches:
    def get_state(self) -> dict[str, int]:
        return {"seen": 1}

    def set_state(self, state: dict[str, int]) -> None: ...


timed = s.Series("run", save_every=timedelta(minutes=10), keep_every=timedelta(hours=1))
assert_type(timed.should_save(3, last=10), bool)
assert_type(s.Series("run", save_every=100, preemption=True).preempted, bool)
assert_type(run.save(1, net, data=Batches(), asynchronous=True), PendingBundle)
assert_type(run.load("latest", load_cls=Net, data=Batches()), Net)
run.save(1, net, data=iter([1]))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
s.Series("run", keep_best=("energy", "least"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
run.load("newest")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
assert_type(s.load("ckpt", load_cls=Net), Net)
assert_type(s.load("ckpt", load_cls=Net, select="tag:trainable", mmap=False, unknown="drop"), Net)
assert_type(s.load("ckpt"), Any)
assert_type(s.example(Net, dims={"n": 3}), Net)
assert_type(s.from_state_dict(s.to_state_dict(net), load_cls=Net), Net)
found: list[s.Diagnostic] = []
assert_type(Net.load("ckpt", report=found, trust=["lab"]), Net)
Net.load("ckpt", maps=False)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Net.load("ckpt", unknown="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
net.export("ckpt", overwrit=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
assert_type(s.validate("ckpt"), list[s.Diagnostic])
assert_type(s.verify("ckpt"), list[s.Diagnostic])
assert_type(s.inspect("ckpt", filter=s.filters.WithTag("a")), Inspection)

# --- filters and trees -----------------------------------------------------------------------------------------------

definition, weights, rest = s.split(net, "trainable", ...)
assert_type(definition, Definition[Net])
assert_type(weights, State)
assert_type(weights[("w",)], Any)
assert_type(s.split(net, ...), tuple[Definition[Net], State])
assert_type(s.split(net, float, "a", "b", ...), tuple[Any, ...])
assert_type(s.merge(definition, weights, rest), Net)
left, right = s.partition(net, s.filters.OfType(float))
assert_type(s.combine(left, right), Net)
s.split(
    net,
    float,
    lambda path, value: bool(path) and value is None,
    ("a", s.filters.Nothing()),
    None,
    True,
)
both = s.filters.WithTag("a") & ~s.filters.PathGlob("**/bias") | "b"
assert_type(both, s.filters.Any)
assert_type(s.filters.parse("tag:a"), s.filters.Matcher)
assert_type(s.filters.to_predicate(both)(("w",), 1.0), bool)
s.split(net, 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]

assert_type(s.partition(net, "a", report=found), tuple[Net, Net])
assert_type(s.map_where(net, "a", lambda leaf: leaf, report=found), Net)
s.filters.axes(net, [(["a", "b"], 0), (..., None)], report=found)


@s.container.derive(containers=["mean"], keep=["name"])
class Estimate:
    def __init__(self, mean: float = 0.0, name: str = "energy") -> None:
        self.mean, self.name = mean, name


assert_type(Estimate(1.0).mean, float)
s.container.derive(keep=["name"])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
s.container.derive(containers=["a"], serialize=lambda obj: ([], None))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportUnknownLambdaType]

# --- schemas and their evolution -------------------------------------------------------------------------------------

schema = s.load_schema("schemas/vmc_state")
assert_type(schema, s.Schema)
assert_type(schema.versions, tuple[int, ...])
assert_type(schema.at(2), s.Schema)
assert_type(schema.document, Document)
assert_type(schema.VMCState, Any)
assert_type(schema["VMCState"], Any)
schema.root(alpha=1)
schema.root.load("ckpt")
schema.load("ckpt", abstract=True)
schema.load("ckpt", abstarct=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
assert_type(s.dump_schema(schema), str)
assert_type(s.dump_schema(Net), str)
assert_type(s.schema_of(Net, schema="lab.net", version=1), Document)
assert_type(s.schema_of({"w": [1.0]}), Document)
assert_type(s.infer("model.safetensors").layout, str)
changes: list[Change] = s.diff(schema.at(1), schema)
steps = s.steps.migration(
    1, [s.steps.rename(field="a", to="b"), s.steps.add(field="c", default=None)]
)
assert_type(steps.steps[0].name, str)
s.steps.rename(field="a", too="b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
s.steps.cast(field="a", dtype=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(s.migrate("ckpt", "new", to=3, dry_run=True).out, Path | None)

try:
    Net.load("ckpt")
except s.SerializationError as error:
    assert_type(error.diagnostics[0].hint, str | None)

# --- params ----------------------------------------------------------------------------------------------------------

params = s.Params({("net", "w"): s.Param(1.0)}).locked()
assert_type(params[("net", "w")], s.Param)
trained, frozen = params.split()
assert_type(trained.merge(frozen), s.Params)
assert_type(s.Rng(s.Graph("net") / "rng").seed(params, 1), s.Params)
params["net"]  # type: ignore[index]  # pyright: ignore[reportArgumentType]
