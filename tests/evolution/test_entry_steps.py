"""rename_path, add and remove inside of pytree fields: states of optax, modules of Equinox, classes of the user."""

import dataclasses
import functools
import json
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import MigrationError, SchemaError
from neuralqx_struct.evolution import steps
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.schema.series import series_of
from tests.builders import bounded, doc, every, payload, refused

HEADER = 'language: "1"\nschema: lab.train\nversion: {}\nroot: Train\nstructs:\n  Train:\n    fields: {{held: pytree}}\n'


@pytest.fixture
def schema(tmp_path):
    """A function that makes a schema whose second version has some steps."""

    def make(*listed):
        folder = tmp_path / "schema"
        folder.mkdir()
        (folder / "v1.yaml").write_text(HEADER.format(1))
        lines = "".join(f"      {steps.step_text(step)}\n" for step in listed)
        (folder / "v2.yaml").write_text(
            HEADER.format(2) + f"migrations:\n  - from: 1\n    steps:\n{lines}"
        )
        return s.load_schema(folder)

    return make


def exported(schema, value, path, edit=None, **options):
    """A bundle of version 1; `edit` changes its manifest as an earlier version of a class would have written it."""
    schema.at(1).Train(held=value).export(path, **options)
    if edit is not None:
        file = path / "manifest.json"
        document = json.loads(file.read_text())
        edit(document["manifest"]["fields"]["held"])
        text = json.dumps(document["manifest"])
        for name, record in document["arrays"].items():
            if f'"{name}"' not in text:
                record["unused"] = True
        file.write_text(json.dumps(document))
        s.bundle.seal(path)
    return path


def nodes_of(node, name):
    """The nodes of a class in a tree of JSON."""
    if isinstance(node, dict):
        if str(node.get("type", "")).endswith(f":{name}"):
            yield node
        for value in node.values():
            yield from nodes_of(value, name)
    elif isinstance(node, list):
        for value in node:
            yield from nodes_of(value, name)


def renamed(name, old, new):
    """An edit that gives a field of a class its former name."""

    def edit(tree):
        for node in nodes_of(tree, name):
            node["fields"] = {old if k == new else k: v for k, v in node["fields"].items()}

    return edit


def without(name, *fields):
    """An edit that takes fields away which a class did not have yet."""

    def edit(tree):
        for node in nodes_of(tree, name):
            for field in fields:
                del node["fields"][field]

    return edit


def assert_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert all(map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b)))


PARAMS = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}


def adam():
    """A state of AdamW after one step."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    state = optimizer.init(PARAMS)
    return optimizer.update(PARAMS, state, PARAMS)[1]


@pytest.mark.parametrize("name", ["ScaleByAdamStat", "Moments"])
def test_a_class_that_no_value_has_is_refused(schema, tmp_path, name):
    lab = schema(steps.rename_path(field="held", of=name, path="mu", to="first"))
    old = exported(lab, adam(), tmp_path / "old")
    with refused(MigrationError, "NQX414", "$.held", name, "EmptyState, ScaleByAdamState") as error:
        lab.load(old)
    hint = error.value.diagnostics[0].hint
    assert ("'ScaleByAdamState'" in hint) == (name != "Moments")


# ---------------------------------------------------------------------------------------------------------------------
# States of optax.


@pytest.mark.parametrize(
    "step",
    [
        steps.rename_path(field="held", path="1/0/first", to="1/0/mu"),
        steps.rename_path(field="held", of="ScaleByAdamState", path="first", to="mu"),
        steps.rename_path(
            field="held", of="optax._src.transform:ScaleByAdamState", path=["first"], to=["mu"]
        ),
    ],
)
@pytest.mark.parametrize("store", ["npz", "safetensors"])
def test_a_renamed_field_of_an_optax_state(schema, tmp_path, step, store):
    lab = schema(step)
    edit = renamed("ScaleByAdamState", "first", "mu")
    old = exported(lab, adam(), tmp_path / "old", edit, store=store)
    assert_equal(lab.load(old).held, adam())
    done = s.migrate(old, tmp_path / "new", schema=tmp_path / "schema")
    assert done.linked  # no array was moved
    s.migrate(tmp_path / "new", tmp_path / "back", schema=tmp_path / "schema", to=1)
    first, second = (s.bundle.read(path).document["manifest"] for path in (old, tmp_path / "back"))
    assert nodes_sorted(first) == nodes_sorted(second)


def nodes_sorted(tree):
    return json.dumps(tree, sort_keys=True)


def test_an_added_field_of_an_optax_state_like_another(schema, tmp_path):
    lab = schema(
        steps.add(field="held", of="ScaleByAdamState", path="nu", like="mu", default=0),
        steps.add(field="held", of="ScaleByAdamState", path="count", default=0),
    )
    old = exported(lab, adam(), tmp_path / "old", without("ScaleByAdamState", "nu", "count"))
    made = lab.load(old).held[1][0]
    assert_equal(made.nu, jax.tree.map(jnp.zeros_like, PARAMS))
    assert_equal(made.mu, adam()[1][0].mu)
    assert made.count == 0
    s.migrate(old, tmp_path / "new", schema=tmp_path / "schema")
    s.migrate(tmp_path / "new", tmp_path / "back", schema=tmp_path / "schema", to=1)
    first, second = (s.bundle.read(path).document["manifest"] for path in (old, tmp_path / "back"))
    assert first == second


def test_a_chain_gets_an_empty_state_in_front(schema, tmp_path):
    lab = schema(steps.add(field="held", path="0", like="1", default=0))
    chain = optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(0.1))
    old = exported(lab, chain.init(PARAMS), tmp_path / "old")
    longer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.add_decayed_weights(0.1)
    )
    assert_equal(lab.load(old).held, longer.init(PARAMS))


def test_a_state_that_goes_away(schema, tmp_path):
    lab = schema(
        steps.remove(field="held", of="ScaleByAdamState", path="extra", like="mu", undo_default=0)
    )

    def edit(tree):
        for node in nodes_of(tree, "ScaleByAdamState"):
            node["fields"]["extra"] = node["fields"]["mu"]

    old = exported(lab, adam(), tmp_path / "old", edit)
    report = []
    assert_equal(lab.load(old, report=report).held, adam())
    assert "was dropped" in str(report[0])
    s.migrate(old, tmp_path / "new", schema=tmp_path / "schema")
    s.migrate(tmp_path / "new", tmp_path / "back", schema=tmp_path / "schema", to=1)
    tree = s.bundle.read(tmp_path / "back").document["manifest"]
    (node,) = nodes_of(tree, "ScaleByAdamState")
    inner = dict(node["fields"]["extra"]["items"])
    assert (inner["w"]["__kind__"], inner["w"]["value"], inner["w"]["shape"]) == (
        "full",
        0.0,
        [2, 3],
    )


# ---------------------------------------------------------------------------------------------------------------------
# Modules of Equinox, classes of the user.


def test_an_equinox_module_whose_class_gained_a_field(schema, tmp_path):
    lab = schema(
        steps.rename_path(field="held", of="Linear", path="kernel", to="weight"),
        steps.add(field="held", of="Linear", path="use_bias", default=True),
    )
    module = eqx.filter(eqx.nn.MLP(2, 1, 3, 2, key=jax.random.key(0)), eqx.is_array)

    def edit(tree):
        renamed("Linear", "kernel", "weight")(tree)
        without("Linear", "use_bias")(tree)

    old = exported(lab, module, tmp_path / "old", edit)
    assert_equal(lab.load(old).held, module)


class Moments(NamedTuple):
    mean: object
    spread: object = None


@jax.tree_util.register_pytree_node_class
class Pair:
    """A registered class: its parts have positions, and no names in files."""

    def __init__(self, *parts, note=""):
        self.parts, self.note = parts, note

    def tree_flatten(self):
        return self.parts, {"note": self.note}

    @classmethod
    def tree_unflatten(cls, aux, parts):
        return cls(*parts, **aux)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["scale"], meta_fields=["mode"])
@dataclasses.dataclass
class Norm:
    scale: object
    mode: str = "rms"


class Boxed:
    """A class whose serializer makes a dict."""

    def __init__(self, **held):
        self.held = held


s.register_pytree_type(
    Boxed,
    flatten=lambda box: ((), None),
    unflatten=lambda aux, children: Boxed(),
    serializer=lambda box: box.held,
    deserializer=lambda held: Boxed(**held),
)


USERS = [
    (Moments(1, 2), steps.rename_path(field="held", of="Moments", path="var", to="spread"),
     renamed("Moments", "var", "spread")),
    ({"a": [Moments(1, 2)]}, steps.rename_path(field="held", path="a/0/var", to="a/0/spread"),
     renamed("Moments", "var", "spread")),
    (Norm(1.5), steps.add(field="held", of="Norm", path="mode", default="rms"),
     without("Norm", "mode")),
]  # fmt: skip


@pytest.mark.parametrize(("value", "step", "edit"), USERS)
def test_classes_of_the_user(schema, tmp_path, value, step, edit):
    lab = schema(step)
    old = exported(lab, value, tmp_path / "old", edit)
    assert lab.load(old).held == value


def test_parts_of_a_registered_class_by_position(schema, tmp_path):
    lab = schema(
        steps.add(field="held", of="Pair", path="1", default=5),
        steps.rename_path(field="held", of="Pair", path="aux/text", to="aux/note"),
    )

    def edit(tree):
        tree["aux"]["items"][0][0] = "text"

    old = exported(lab, Pair(1, 3, note="x"), tmp_path / "old", edit)
    made = lab.load(old).held
    assert (made.parts, made.note) == ((1, 5, 3), "x")
    s.migrate(old, tmp_path / "new", schema=tmp_path / "schema")
    s.migrate(tmp_path / "new", tmp_path / "back", schema=tmp_path / "schema", to=1)
    trees = [s.bundle.read(path).document["manifest"] for path in (old, tmp_path / "back")]
    assert trees[0] == trees[1]


def test_what_a_serializer_returned(schema, tmp_path):
    lab = schema(steps.rename_path(field="held", path="old", to="new"))
    old = exported(lab, Boxed(old=7), tmp_path / "old")
    assert lab.load(old).held.held == {"new": 7}


# ---------------------------------------------------------------------------------------------------------------------
# Refusals.

REFUSED = [
    (steps.add(field="a", path="x", copy_of="d"), "NQX304", "both"),
    (steps.remove(field="a", of="X", lossy=True), "NQX304", "path:"),
    (steps.add(field="a", path="x//y", default=0), "NQX304", "slashes"),
    (steps.add(field="i", path="x", default=0), "NQX306", "pytree"),
    (steps.add(field="d", path="x", default="text"), "NQX107", "int"),
    (steps.add(field="d", of="X", path="x", default=0), "NQX306", "X"),
    (steps.add(field="a", path="x", like="y", default="z"), "NQX107", "number"),
    (steps.remove(field="a", path="x"), "NQX308", "undo_default"),
    (steps.remove(field="a", path="x", like="y", undo_default=None), "NQX107", "number"),
    (steps.rename_path(field="d", of="X", path="x", to="y"), "NQX306", "X"),
]


@every(("step", "code", "word"), REFUSED)
def test_declarations_refuse(step, code, word):
    old = doc({"a": "pytree", "i": "int", "d": "dict[str, int]"})
    with pytest.raises(SchemaError) as caught:
        steps.apply_to_document(old, step, old)
    (found,) = caught.value.diagnostics
    assert (found.code, word in found.message) == (code, True)


WRONG = [
    (steps.add(field="a", path="x", default=0), {"x": 1}, "NQX415", "$.a['x']"),
    (steps.add(field="a", path="x/y", default=0), {"x": 1}, "NQX414", "$.a['x']"),
    (steps.add(field="a", path="x", like="y", default=0), {"z": 1}, "NQX414", "$.a['y']"),
    (steps.add(field="a", path="x", like="y", default=300), {"y": np.zeros(2, "i1")}, "NQX107", "$.a['y']"),
    (steps.remove(field="a", path="x", lossy=True), {"z": 1}, "NQX414", "$.a['x']"),
    (steps.remove(field="a", path="x/1", lossy=True), {"x": [1]}, "NQX414", "$.a['x']['1']"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "held", "code", "path"), WRONG)
def test_payloads_that_do_not_fit(step, held, code, path):
    old, new = doc({"a": "pytree"}), doc({"a": "pytree"}, 2, [step])
    assert {d.code for d in prove(old, new) if d.severity != "info"} <= {"NQX307"}
    with pytest.raises(MigrationError) as caught:
        apply(payload(old, {"a": held}), plan(series_of([old, new]), 1, 2))
    assert (caught.value.code, caught.value.diagnostics[0].path) == (code, path)


def test_an_entry_of_a_dict_field_has_its_type():
    step = steps.add(field="a", path="x", default=1)
    old, new = doc({"a": "dict[str, float]"}), doc({"a": "dict[str, float]"}, 2, [step])
    after = apply(payload(old, {"a": {"y": 0.5}}), plan(series_of([old, new]), 1, 2))
    assert after.document["manifest"]["fields"]["a"]["items"] == [["y", 0.5], ["x", 1.0]]


def test_nothing_is_there():
    step = steps.add(field="a", path="x", default=1)
    old, new = doc({"a": "pytree | null"}), doc({"a": "pytree | null"}, 2, [step])
    after = apply(payload(old, {"a": None}), plan(series_of([old, new]), 1, 2))
    assert after.document["manifest"]["fields"] == {"a": None}


def test_a_struct_of_the_schema_is_changed_by_its_own_steps():
    step = steps.rename_path(field="a", path="x", to="y")
    structs = {"B": {"x": "int"}}
    fields = {"a": "pytree", "b": "B"}
    old, new = doc(fields, structs=structs), doc(fields, 2, [step], structs=structs)
    held = payload(old, {"a": ("B", {"x": 1}), "b": ("B", {"x": 1})})
    with refused(MigrationError, "NQX414", "$.a", "B"):
        apply(held, plan(series_of([old, new]), 1, 2))


def test_entries_of_a_very_large_dict_are_looked_at_once_per_step(schema, tmp_path):
    """A step that looked at every entry for every other one would not end."""
    made = schema(
        steps.rename_path(field="held", path=["a", "k5"], to=["b", "z"]),
        steps.add(field="held", path=["a", "new"], default=1),
        steps.remove(field="held", path=["a", "k7"], undo_default=0),
        steps.rename_path(field="held", path=["a", "k9"], to=["a", "k10"]),
    )
    value = {"a": {f"k{i}": i for i in range(100_000)}}
    path = exported(made, value, tmp_path / "ckpt")
    with bounded(), refused(MigrationError, "NQX415", "$.held['a']['k10']"):
        made.load(path)
    del value["a"]["k10"]
    path = exported(made, value, tmp_path / "other")
    with bounded():
        held = made.load(path).held
    assert held["b"] == {"z": 5}
    assert held["a"].keys() == value["a"].keys() - {"k5", "k7", "k9"} | {"new", "k10"}
