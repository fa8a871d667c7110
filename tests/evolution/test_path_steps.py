"""rename_path: a subtree of Params, or of dicts, gets another path by one step of the manifest."""

import copy
import random

import jax.numpy as jnp
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.evolution.plans import apply, plan
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.schema.series import series_of
from tests.builders import doc, every, payload, refused, value

HEADER = 'language: "1"\nschema: lab.train\nversion: {}\nroot: Train\nstructs:\n  Train:\n    fields:\n      {}\n'
PARAMS = "params: pytree"


def schema(folder, steps, *, fields=PARAMS, old_fields=None):
    """A schema whose second version has these steps."""
    folder.mkdir(exist_ok=True)
    (folder / "v1.yaml").write_text(HEADER.format(1, old_fields or fields))
    lines = "".join(f"      {s.steps.step_text(step)}\n" for step in steps)
    (folder / "v2.yaml").write_text(
        HEADER.format(2, fields) + f"migrations:\n  - from: 1\n    steps:\n{lines}"
    )
    return s.load_schema(folder)


def params():
    return s.Params(
        {
            ("net", "enc"): s.Param(jnp.float32(3.0), trainable=False),
            ("net", "enc", "w"): s.Param(jnp.ones((2, 3)), metadata={"tag": "lora"}),
            ("net", "enc", "b"): s.Param(jnp.zeros(3)),
            ("net", "head"): s.Param(jnp.ones(2)),
            ("rng", "counter"): s.Param(jnp.uint32(7), trainable=False),
        }
    ).locked()


def moved(old, new):
    return s.Params(
        {
            (*new, *path[len(old) :]) if path[: len(old)] == old else path: p
            for path, p in params().items()
        }
    ).locked()


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("net/enc", "net/encoder"),
        ("net/enc", "model/layers/enc"),
        ("net", "model"),
        ("net", "net/inner"),
        ("net/enc/w", "net/enc/a kernel"),
        ("rng/counter", "rng"),
        (["net", "enc"], ["net", "a/b"]),
    ],
)
def test_a_subtree_of_params_moves_up_and_down(tmp_path, path, to):
    lab = schema(tmp_path / "schema", [s.steps.rename_path(field="params", path=path, to=to)])
    lab.at(1).Train(params=params()).export(tmp_path / "old")
    keys = [tuple(p.split("/")) if isinstance(p, str) else tuple(p) for p in (path, to)]
    new = lab.load(tmp_path / "old")
    assert isinstance(new.params, s.Params)
    assert new.params == moved(*keys)
    new.export(tmp_path / "new")
    assert s.validate(tmp_path / "new") == s.verify(tmp_path / "new") == []
    s.migrate(tmp_path / "new", tmp_path / "back", to=1)
    assert lab.at(1).load(tmp_path / "back").params == params()


def test_the_step_moves_no_array_byte(tmp_path):
    step = s.steps.rename_path(field="params", path="net/enc", to="net/encoder")
    schema(tmp_path / "schema", [step]).at(1).Train(params=params()).export(tmp_path / "old")
    assert s.steps.cost(step) == "manifest"
    s.migrate(tmp_path / "old", tmp_path / "new", schema=tmp_path / "schema")
    inodes = [(tmp_path / name / "arrays.npz").stat().st_ino for name in ("old", "new")]
    assert inodes[0] == inodes[1]


@pytest.mark.parametrize(
    "type_",
    ["pytree", '"dict[str, dict[str, float32[n]]]"', '"dict[str, dict[str, float32[n]]] | null"'],
)
def test_dicts_are_renamed_too(tmp_path, type_):
    step = s.steps.rename_path(field="params", path="a/x", to="b/y")
    lab = schema(tmp_path / "schema", [step], fields=f"params: {{type: {type_}}}")
    lab.at(1).Train(
        params={"a": {"x": np.ones(2, "float32")}, "b": {"z": np.zeros(2, "float32")}}
    ).export(tmp_path / "old")
    new = lab.load(tmp_path / "old").params
    assert {key: sorted(inner) for key, inner in new.items()} == {"a": [], "b": ["y", "z"]}
    assert new["b"]["y"].tolist() == [1.0, 1.0]


def test_null_stays_null(tmp_path):
    lab = schema(
        tmp_path / "schema",
        [s.steps.rename_path(field="params", path="a", to="b")],
        fields='params: {type: "pytree | null"}',
    )
    lab.at(1).Train(params=None).export(tmp_path / "old")
    assert lab.load(tmp_path / "old").params is None


@every(
    ("step", "code", "named"),
    [
        (s.steps.rename_path(field="params", path="a", to="a"), "NQX306", "v2.yaml"),
        (s.steps.rename_path(field="params", path="a//b", to="c"), "NQX304", "v2.yaml"),
        (s.steps.rename_path(field="params", path="a", to=["b", ""]), "NQX304", "v2.yaml"),
        (
            s.steps.rename_path(field="step", path="a", to="b"),
            "NQX306",
            "int",
        ),
        (
            s.steps.rename_path(field="deep", path="a/b", to="c/d"),
            "NQX306",
            "dict[str, int]",
        ),
        (
            s.steps.rename_path(field="either", path="a", to="b"),
            "NQX306",
            "int | str",
        ),
        (
            s.steps.rename_path(field="mixed", path="a", to="b/c"),
            "NQX306",
            "dict[str, int]",
        ),
        (
            s.steps.rename_path(field="nothing", path="a", to="b"),
            "NQX304",
            "'nothing'",
        ),
    ],
)
def test_declarations_that_are_refused(tmp_path, step, code, named):
    fields = f'{PARAMS}\n      step: int\n      deep: "dict[str, int]"\n      either: "int | str"\n      '
    fields += 'mixed: "dict[str, dict[str, int]]"'
    with refused(s.SchemaError, code, named):
        _ = schema(tmp_path / "schema", [step], fields=fields).load(tmp_path)


@pytest.mark.parametrize(
    ("value", "paths", "code", "place"),
    [
        (params(), ("net/encoder", "x"), "NQX414", "$.params.tree['net']['encoder']"),
        (params(), ("net/encoder", "x"), "NQX414", "'enc'"),
        (params(), ("net/enc", "net/head"), "NQX415", "$.params.tree['net']['head']"),
        ({"a": 1, "b": 2}, ("a", "b/a"), "NQX414", "$.params['b']"),
        ([1], ("a", "b"), "NQX414", "$.params['a']"),
        ([1], ("0", "7"), "NQX414", "$.params['7']"),
        ({1: 2}, ("a", "b"), "NQX414", "$.params['a']"),
    ],
)
def test_payloads_that_do_not_hold_it(tmp_path, value, paths, code, place):
    path, to = paths
    lab = schema(tmp_path / "schema", [s.steps.rename_path(field="params", path=path, to=to)])
    lab.at(1).Train(params=value).export(tmp_path / "old")
    with refused(s.MigrationError, code, place):
        lab.load(tmp_path / "old")


def test_keys_that_are_no_text_stay(tmp_path):
    lab = schema(tmp_path / "schema", [s.steps.rename_path(field="params", path="a", to="b")])
    lab.at(1).Train(params={"a": 1, 1: 2}).export(tmp_path / "old")
    assert lab.load(tmp_path / "old").params == {"b": 1, 1: 2}


class Train(s.Struct):
    params: s.Params
    step: int = 0


def test_the_schema_of_a_class_with_params_keeps_them_params(tmp_path):
    lab = s.load_schema(s.dump_schema(Train))
    assert lab.document.structs[lab.document.root].fields["params"].text == "pytree"
    lab.Train(params=params(), step=3).export(tmp_path / "ckpt")
    assert lab.load(tmp_path / "ckpt").params == params()
    assert s.validate(tmp_path / "ckpt") == []
    assert (
        bundle.read_manifest(tmp_path / "ckpt")["manifest"]["fields"]["params"]["type"]
        == "neuralqx_struct.params:Params"
    )


def test_a_python_class_with_params_migrates_them(tmp_path):
    class State(s.Struct, schema="lab.state", version=1):
        params: s.Params

    path = State(params()).export(tmp_path / "ckpt")
    assert s.validate(path) == []
    old = State

    class State(
        s.Struct, schema="lab.state", version=2, migrations=[s.steps.migration(1, [RENAMED])]
    ):
        params: s.Params

    assert old is not State
    assert State.load(path).params == moved(("net",), ("model",))


RENAMED = s.steps.rename_path(field="params", path="net", to="model")


# ---------------------------------------------------------------------------------------------------------------------
# Against a model.


def made(choose, depth):
    """A random dict of dicts, with empty ones."""
    keys = choose.sample("abc", choose.randint(0, 3))
    return {key: made(choose, depth - 1) if depth and choose.random() < 0.7 else 1 for key in keys}


def model(tree, path, to):
    """The tree with an entry at another path; a text where the step stops."""
    tree = copy.deepcopy(tree)
    around = [tree]
    for key in path[:-1]:
        around.append(around[-1].get(key) if isinstance(around[-1], dict) else None)
    if not isinstance(around[-1], dict) or path[-1] not in around[-1]:
        return "NQX414"
    moved = around[-1].pop(path[-1])
    if path[: len(to)] == to and empty_but_for(around[len(to)], path[len(to) : -1]):
        del around[len(to) - 1][to[-1]]  # the entry takes the place of the dicts around it
    inside = tree
    for key in to[:-1]:
        inside = inside.setdefault(key, {})
        if not isinstance(inside, dict):
            return "NQX414"
    if to[-1] in inside:
        return "NQX415"
    inside[to[-1]] = moved
    return tree


def empty_but_for(tree, keys):
    return (
        not tree
        if not keys
        else tree.keys() == {keys[0]} and empty_but_for(tree[keys[0]], keys[1:])
    )


@every("seed", range(300))
def test_random_trees_agree_with_a_model_and_come_back(seed):
    choose = random.Random(seed)
    tree = made(choose, 3)
    path, to = ([*choose.choices("abc", k=choose.randint(1, 3))] for _ in "ab")
    if path == to:
        return
    step = s.steps.rename_path(field="f", path=path, to=to)
    old, new = doc({"f": "pytree"}), doc({"f": "pytree"}, 2, [step])
    assert {(d.code, d.severity) for d in prove(old, new)} == {("NQX320", "info")}
    series = series_of([old, new])
    wanted = model(tree, path, to)
    if isinstance(wanted, str):
        with refused(s.MigrationError, wanted):
            apply(payload(old, {"f": tree}), plan(series, 1, 2))
        return
    there = apply(payload(old, {"f": tree}), plan(series, 1, 2))
    assert value(there.document["manifest"], {}) == {"f": wanted}
    back = apply(there, plan(series, 2, 1))
    assert value(back.document["manifest"], {}) == {"f": model(wanted, to, path)}
    # Only dicts that the step made, or took away, can differ from what they were.
    if set(leaves(tree)) == set(leaves(model(wanted, to, path))):
        assert len(to) > 1 or path[: len(to)] == to or model(wanted, to, path) == tree


def leaves(tree, at=()):
    """Yields the paths of values that are no dicts."""
    for key, inner in tree.items():
        yield from leaves(inner, (*at, key)) if isinstance(inner, dict) else [(*at, key)]


def test_an_empty_dict_of_another_kind_stays(tmp_path):
    step = s.steps.rename_path(field="f", path="a/x", to="b/x")
    old, new = doc({"f": "pytree"}), doc({"f": "pytree"}, 2, [step])
    inner = {"__kind__": "ordered-dict", "items": [["x", 1]]}
    empty = {"__kind__": "ordered-dict", "items": []}
    held = payload(old, {"f": {"a": inner, "b": empty}})
    there = apply(held, plan(series_of([old, new]), 1, 2))
    back = apply(there, plan(series_of([old, new]), 2, 1))
    assert back.document["manifest"] == held.document["manifest"]


OF = {"field": "f", "path": "count", "of": "Adam"}


@pytest.mark.parametrize(
    ("step", "where"),
    [
        (s.steps.add(default=0, **OF), "without instances of Adam, or with count"),
        (s.steps.remove(lossy=True, **OF), "without instances of Adam, count"),
        (s.steps.add(field="f", path="a/b", default=0), "payloads with a/b"),
        (s.steps.remove(field="f", path="a/b", undo_default=0), "payloads without a/b"),
    ],
)
def test_lint_names_the_payloads_that_lack_what_a_step_reaches(step, where):
    old, new = doc({"f": "pytree"}), doc({"f": "pytree"}, 2, [step])
    assert where in next(d.message for d in prove(old, new) if d.code == "NQX320")
