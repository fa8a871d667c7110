"""The suite of steps: a schema of two versions for each step, whose bundles go up and down in every store, lazily."""

import jax
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.evolution.steps import STEPS
from neuralqx_struct.formats.store import STORES
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.tools.linting import lint
from tests.builders import ROOT, every

SUITE = ROOT / "tests" / "suite" / "steps"

#: Values that examples rarely have, and that both directions keep.
VALUES = {
    "remove": {"rank": 0},
    "fill": {"energy": 1.5},
    "rename_path": {"state": {"mean": np.ones(3, "float32"), "nu": np.zeros(3, "float32")}},
    "split": {"parts": {"decoder": 0.5, "encoder": 1.5}},
    "convert": {"history": [0.5, 1.5], "acts": ("relu", "gelu", "relu")},
}
#: The other places are slow: Orbax needs long, and a step that moves no array bytes is the same in npz and safetensors.
FAST = {(name, "npz") for name in STEPS}
FAST |= {(name, "safetensors") for name, kind in STEPS.items() if kind.cost != "manifest"}
FAST |= {("merge", "orbax"), ("stack", "orbax"), ("rename_path", "orbax")}
PLACES = [
    pytest.param(name, store, marks=() if (name, store) in FAST else pytest.mark.slow)
    for name in STEPS
    for store in STORES
]


@pytest.fixture(autouse=True)
def flip():
    """The function of the step ``python``."""

    def flipped(values):
        layers = [{"mask": ~layer["mask"]} for layer in values["layers"]]
        return {"mask": ~values["mask"], "layers": layers}

    s.steps.function("lab.flip")(flipped)


def test_every_step_has_a_schema():
    assert {path.name for path in SUITE.iterdir()} == STEPS.keys()


@every("name", STEPS)
def test_its_migration_is_proved_and_has_its_cost(name):
    folder = SUITE / name
    found = [d for d in lint(folder) if d.severity != "info"]
    assert {d.code for d in found} <= {
        "NQX320"
    }  # some steps stop at what a declaration leaves open
    migration = load_series(folder).head.migrations[0]
    assert {step.name for step in migration.steps} == {name}


@pytest.mark.parametrize(("name", "store"), PLACES)
def test_bundles_go_up_and_down(tmp_path, name, store):
    folder = SUITE / name
    schema = s.load_schema(folder)
    one = schema.at(1)
    old = s.example(one.Net, key=5).replace(**VALUES.get(name, {}))
    old.export(tmp_path / "old", store=store)
    loaded = schema.load(tmp_path / "old")

    done = s.migrate(tmp_path / "old", tmp_path / "new", schema=folder)
    assert done.plan.cost == STEPS[name].cost
    found = s.validate(tmp_path / "new", schema=folder)
    assert [d.code for d in found if d.code != "NQX410"] == []  # an array may be left unused
    assert schema.load(tmp_path / "new") == loaded
    s.migrate(tmp_path / "new", tmp_path / "back", schema=folder, to=1)
    assert one.load(tmp_path / "back") == old

    if STEPS[name].cost != "opaque":  # nothing is computed before an array is asked for
        shapes = schema.load(tmp_path / "old", abstract=True)
        assert jax.tree.map(np.shape, shapes) == jax.tree.map(np.shape, loaded)
