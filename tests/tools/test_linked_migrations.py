"""Bundles migrated on disk, one hop after the other or at once, hold the arrays of a model of the steps."""

import json
import random

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import bundle
from neuralqx_struct.manifest import Limits
from neuralqx_struct.schema.series import series_of
from tests.builders import doc, every, payload, refused


def written(array):
    return f"float{array.itemsize * 8}[{', '.join(map(str, array.shape))}]"


class Model:
    """Versions of a struct of arrays, with the arrays that each step gives, both ways."""

    def __init__(self, seed):
        self.choose = random.Random(seed)
        self.fresh = iter("cdefghijklmnopqrstuvwxyz")
        arrays = {
            name: np.arange(6, dtype="f4").reshape(2, 3) + 10 * i for i, name in enumerate("ab")
        }
        arrays["large"] = np.arange(500, dtype="f4")  # makes links worth their while
        self.versions = [arrays]
        self.steps = [[]]
        for _ in range(3):
            self.hop()

    def hop(self):
        now, steps, added = dict(self.versions[-1]), [], {"large"}
        for _ in range(self.choose.randint(1, 3)):
            names = [name for name in now if name not in added]
            kind = self.choose.choice(["transpose", "rename", "remove", "add", "cast", "swap"])
            name = self.choose.choice(names) if names else ""
            if kind == "transpose" and name:
                now[name] = np.ascontiguousarray(now[name].T)
                steps.append({"transpose": {"field": name}})
            elif kind == "rename" and name:
                new = self.choose.choice(["a", "b", next(self.fresh)])
                if new not in now:
                    now = {new if key == name else key: array for key, array in now.items()}
                    steps.append({"rename": {"field": name, "to": new}})
            elif kind == "remove" and len(names) > 1:
                del now[name]
                steps.append({"remove": {"field": name, "undo_default": 7}})
            elif kind == "add":
                new = self.choose.choice(["a", "b", next(self.fresh)])
                if new not in now:
                    now[new] = np.full((3, 2), 5, "f4")
                    steps.append({"add": {"field": new, "default": 5}})
                    added.add(new)  # the new version declares it as its last step leaves it
            elif kind == "cast" and name and now[name].dtype == "f4":
                now[name] = now[name].astype("f8")
                steps.append({"cast": {"field": name, "dtype": "float64"}})
        self.versions.append(now)
        self.steps.append(steps)

    def down(self, version):
        """The arrays of a version after a downgrade from the newest one."""
        now = dict(self.versions[-1])
        for steps in reversed(self.steps[version:]):
            for step in reversed(steps):
                ((kind, given),) = step.items()
                name = given["field"]
                if kind == "transpose":
                    now[name] = None if now[name] is None else now[name].T
                elif kind == "rename":
                    now[name] = now.pop(given["to"])
                elif kind == "remove":
                    now[name] = None  # full of the default
                elif kind == "add":
                    del now[name]
                elif now[name] is not None:
                    now[name] = now[name].astype("f4")
        model = self.versions[version - 1]
        full = {name: np.full(model[name].shape, 7, model[name].dtype) for name in model}
        return {name: full[name] if now[name] is None else now[name] for name in model}

    def write(self, folder):
        folder.mkdir()
        for version, arrays in enumerate(self.versions, 1):
            fields = {name: written(array) for name, array in arrays.items()}
            data = {"language": "1", "schema": "lab.m", "version": version, "root": "M"}
            data["structs"] = {"M": {"fields": fields}}
            if version > 1:
                data["migrations"] = [{"from": version - 1, "steps": self.steps[version - 1]}]
            (folder / f"v{version}.json").write_text(json.dumps(data))
        return s.load_schema(folder)


def agrees(schema, version, path, arrays):
    assert [d for d in s.verify(path) if d.severity == "error"] == []
    assert [d for d in s.validate(path, schema) if d.severity == "error"] == []
    loaded = schema.at(version).load(path, as_numpy=True)
    for name, array in arrays.items():
        assert np.array_equal(getattr(loaded, name), array), name


@every("seed", range(30))
def test_hops_on_disk_agree_with_a_model(seed, tmp_path):
    model = Model(seed)
    schema = model.write(tmp_path / "m")
    newest = len(model.versions)
    here = schema.at(1).M(**model.versions[0]).export(tmp_path / "v1")
    s.migrate(here, tmp_path / "at once", schema=schema)
    agrees(schema, newest, tmp_path / "at once", model.versions[-1])
    for version in range(2, newest + 1):
        here, before = tmp_path / f"v{version}", here
        s.migrate(before, here, to=version, schema=schema)
        agrees(schema, version, here, model.versions[version - 1])
    for version in range(newest - 1, 0, -1):
        here, before = tmp_path / f"down {version}", here
        s.migrate(before, here, to=version, schema=schema)
        agrees(schema, version, here, model.down(version))
        s.migrate(tmp_path / "at once", tmp_path / f"direct {version}", to=version, schema=schema)
        agrees(schema, version, tmp_path / f"direct {version}", model.down(version))


def test_a_new_array_never_has_the_name_of_one_in_a_linked_file(tmp_path):
    model = Model(0)
    model.versions = [{"a": np.ones((2, 3), "f4"), "large": np.arange(500, dtype="f4")}]
    model.versions.append({"a": np.ones((3, 2), "f4"), "large": model.versions[0]["large"]})
    model.steps = [[], [{"transpose": {"field": "a"}}]]
    schema = model.write(tmp_path / "m")
    old = schema.at(1).M(**model.versions[0]).export(tmp_path / "old")
    done = s.migrate(old, tmp_path / "new", schema=schema)
    assert done.linked
    records = bundle.read(tmp_path / "new").document["arrays"]
    assert {name: record.get("unused") for name, record in records.items()} == {
        "a": True,
        "a~2": None,
        "large": None,
    }


def test_a_migration_takes_limits(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    head = 'language: "1"\nschema: lab.m\nversion: %d\nroot: M\nstructs: {M: {fields: {%s}}}\n'
    (folder / "v1.yaml").write_text(head % (1, "a: int"))
    step = "migrations: [{from: 1, steps: [{add: {field: b, default: 0}}]}]\n"
    (folder / "v2.yaml").write_text(head % (2, 'a: int, b: "int8[1100, 1000000]"') + step)
    schema = s.load_schema(folder)
    old = schema.at(1).M(a=1).export(tmp_path / "old")
    with refused(s.SerializationError, "NQX505", "1073741824"):
        s.migrate(old, tmp_path / "new", schema=schema)
    limits = Limits(full_bytes=1 << 31)
    for name in ("new", "new.zip"):
        s.migrate(old, tmp_path / name, schema=schema, limits=limits)
        assert bundle.read(tmp_path / name, limits=limits).document["schema"]["version"] == 2
    with refused(s.SerializationError, "NQX005", "10"):
        s.migrate(old, tmp_path / "no", schema=schema, limits=Limits(manifest_bytes=10))


@pytest.mark.parametrize(
    ("left", "code"),
    [({"B": {"x": {"type": "int", "ge": 5}}}, "NQX416"), ({}, "NQX411"), ({"B": {"x": "int"}}, "")],
)
def test_a_struct_in_a_pytree_is_checked_as_in_a_load(tmp_path, left, code):
    old = doc({"p": "pytree"}, structs={"B": {"x": "int"}, "C": {"q": "pytree"}})
    new = doc({"p": "pytree"}, 2, [], structs={**left, "C": {"q": "pytree"}})
    series, held = series_of([old, new]), {"p": [("C", {"q": {"k": ("B", {"x": 1})}})]}
    bundle.write(tmp_path / "old", payload(old, held))
    if code:
        with pytest.raises(s.MigrationError) as caught:
            s.migrate(tmp_path / "old", tmp_path / "new", schema=series)
        assert [d.code for d in caught.value.diagnostics] == [code]
        assert "$.p[0].q['k']" in str(caught.value)
    else:
        s.migrate(tmp_path / "old", tmp_path / "new", schema=series)
    bundle.write(tmp_path / "held", payload(new, held))
    assert [d.code for d in s.validate(tmp_path / "held")] == ([code] if code else [])
