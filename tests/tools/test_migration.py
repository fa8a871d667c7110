"""Bundles that are migrated: what is written, linked and refused."""

import json

import numpy as np
import pytest

from neuralqx_struct import bundle
from neuralqx_struct.errors import MigrationError, SerializationError
from neuralqx_struct.evolution import steps as s
from neuralqx_struct.evolution.plans import plan
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import load_series, series_of
from neuralqx_struct.tools.migration import migrate
from tests.builders import doc, first_vmc_state, payload, refused

SERIES = load_series("schemas/vmc_state")


def fields_of(held):
    return held.document["manifest"]["fields"]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_migrate_bundles_up_and_down(tmp_path):
    bundle.write(tmp_path / "v1", first_vmc_state())
    before = contents(tmp_path / "v1")
    done = migrate(tmp_path / "v1", tmp_path / "v3", schema="schemas/vmc_state")
    assert (done.out, done.linked, done.plan.to_version) == (tmp_path / "v3", False, 3)
    assert "was cast from float64 to int8" in str(done)
    assert contents(tmp_path / "v1") == before
    assert bundle.verify(tmp_path / "v3") == []
    migrate(tmp_path / "v3", tmp_path / "down.zip", to=1)
    back, old = bundle.read(tmp_path / "down.zip"), first_vmc_state()
    for name, node in fields_of(old).items():
        if isinstance(node, dict):
            assert (
                back.arrays[fields_of(back)[name]["name"]].tobytes() == old.arrays[name].tobytes()
            )


def test_a_migration_of_the_manifest_links_the_arrays(tmp_path):
    old = doc({"a": "float32[n]", "b": "int8[n]"})
    steps = [
        s.rename(field="a", to="c"),
        s.remove(field="b", undo_default=0),
        s.add(field="d", default=0),
    ]
    new = doc({"c": "float32[n]", "d": "float32[n]"}, 2, steps)
    bundle.write(tmp_path / "old", payload(old, {"a": np.ones(9, "f4"), "b": np.zeros(9, "i1")}))
    done = migrate(tmp_path / "old", tmp_path / "new", schema=series_of([old, new]))
    assert done.linked
    assert (tmp_path / "old" / "arrays.npz").samefile(tmp_path / "new" / "arrays.npz")
    read = bundle.read(tmp_path / "new")
    assert read.arrays["a"].tolist() == [1] * 9
    assert fields_of(read)["d"]["shape"] == [9]
    assert {d.severity for d in bundle.verify(tmp_path / "new")} <= {"info"}


def test_arrays_of_which_most_change_are_written_anew(tmp_path):
    old = doc({"a": "float32[n]", "b": "int8[n]"})
    new = doc({"a": "float64[n]", "b": "int8[n]"}, 2, [s.cast(field="a", dtype="float64")])
    few = doc({"a": "float32[n]", "b": "int16[n]"}, 2, [s.cast(field="b", dtype="int16")])
    bundle.write(tmp_path / "old", payload(old, {"a": np.ones(9, "f4"), "b": np.zeros(9, "i1")}))
    assert not migrate(tmp_path / "old", tmp_path / "new", schema=series_of([old, new])).linked
    assert migrate(tmp_path / "old", tmp_path / "few", schema=series_of([old, few])).linked
    for name in ("new", "few"):
        read = bundle.read(tmp_path / name)
        assert {
            k: v.tolist()
            for k, v in read.arrays.items()
            if k in {x["name"] for x in fields_of(read).values()}
        }
        assert {d.severity for d in bundle.verify(tmp_path / name)} <= {"info"}
    assert (
        bundle.read(tmp_path / "few")
        .arrays[fields_of(bundle.read(tmp_path / "few"))["b"]["name"]]
        .dtype
        == np.int16
    )


def test_a_dry_run_says_that_values_were_not_read(tmp_path):
    old = doc({"a": "float64[n]", "b": "int"})
    new = doc({"a": "float32[n]", "b": "int"}, 2, [s.cast(field="a", dtype="float32")])
    bundle.write(tmp_path / "a", payload(old, {"a": np.array([0.1]), "b": 1}))
    series = series_of([old, new])
    done = migrate(tmp_path / "a", tmp_path / "b", schema=series, dry_run=True)
    assert str(done).endswith("whether casts hold all of them shows when the bundle is written")
    with pytest.raises(MigrationError):
        migrate(tmp_path / "a", tmp_path / "b", schema=series)
    manifest_only = series_of(
        [old, doc({"a": "float64[n]", "c": "int"}, 2, [s.rename(field="b", to="c")])]
    )
    done = migrate(tmp_path / "a", tmp_path / "b", schema=manifest_only, dry_run=True)
    assert "not read" not in str(done)


def test_a_wrong_step_is_found_in_its_schema_file(tmp_path):
    first = 'language: "1"\nschema: lab.a\nversion: {}\nroot: A\nstructs:\n  A:\n    fields:\n      {}: int\n'
    steps = "migrations:\n  - from: 1\n    steps:\n      - rename: {field: x, to: b}\n"
    (tmp_path / "v1.yaml").write_text(first.format(1, "a"))
    (tmp_path / "v2.yaml").write_text(first.format(2, "b") + steps)
    series = load_series(tmp_path)
    bundle.write(tmp_path / "held", payload(series.at(1), {"a": 1}))
    with pytest.raises(MigrationError) as caught:
        migrate(tmp_path / "held", tmp_path / "out", schema=series)
    (found,) = caught.value.diagnostics
    assert (found.file, found.line, found.column) == (str(tmp_path / "v2.yaml"), 12, 25)
    with pytest.raises(MigrationError) as caught:  # the way down is told of in the same file
        plan(series, 2, 1)
    assert caught.value.diagnostics[0].file == str(tmp_path / "v2.yaml")


def test_a_dry_run_writes_nothing(tmp_path):
    bundle.write(tmp_path / "v1", first_vmc_state())
    done = migrate(tmp_path / "v1", tmp_path / "v3", schema=SERIES, dry_run=True)
    assert done.out is None
    assert len(done.plan.hops) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["v1"]


def test_migrate_refuses_before_it_writes(tmp_path):
    bundle.write(tmp_path / "v1", first_vmc_state())
    (tmp_path / "there" / "kept").mkdir(parents=True)
    with pytest.raises(SerializationError):
        migrate(tmp_path / "v1", tmp_path / "there", schema=SERIES)
    bad = first_vmc_state()
    bad.arrays["samples"][0, 0] = 0.25
    bundle.write(tmp_path / "bad", bad)
    with pytest.raises(MigrationError) as caught:
        migrate(tmp_path / "bad", tmp_path / "v3", schema=SERIES)
    assert caught.value.diagnostics[0].file == str(tmp_path / "bad")
    assert not (tmp_path / "v3").exists()


def test_migrate_refuses_what_the_new_version_would_not_read(tmp_path):
    old, new = doc({"a": "int"}), doc({"a": "int | null"}, 2, [])
    bundle.write(tmp_path / "new", payload(new, {"a": None}))
    with pytest.raises(MigrationError) as caught:
        migrate(tmp_path / "new", tmp_path / "old", schema=series_of([old, new]), to=1)
    assert caught.value.code == "NQX411"
    assert not (tmp_path / "old").exists()


def test_migrate_takes_what_users_call_a_schema(tmp_path):
    class Schema:
        series = SERIES

    bundle.write(tmp_path / "v1", first_vmc_state())
    assert (
        migrate(
            tmp_path / "v1", tmp_path / "v2", to=2, schema=Schema(), trust=["x"]
        ).plan.to_version
        == 2
    )
    assert json.loads((tmp_path / "v2" / "manifest.json").read_text())["schema"]["version"] == 2


def test_a_migration_replaces_a_bundle_that_it_is_asked_to_replace(tmp_path):
    old, new = doc({"a": "int"}), doc({"b": "int"}, 2, [s.rename(field="a", to="b")])
    source = bundle.write(tmp_path / "old", payload(old, {"a": 1}, [old, new]))
    target = bundle.write(tmp_path / "new", payload(old, {"a": 2}, [old, new]))
    with pytest.raises(bundle.BundleExistsError) as caught:
        migrate(source, target)
    (found,) = caught.value.diagnostics
    assert (found.code, found.file) == ("NQX431", str(target))
    assert found.hint == "pass overwrite=True to replace it"
    migrate(source, target, overwrite=True)
    assert bundle.read(target).document["manifest"]["fields"] == {"b": 1}
    with refused(bundle.BundleExistsError, "NQX431", "old"):
        migrate(source, tmp_path / "new" / ".." / "old", overwrite=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "kept.txt").write_text("mine")
    with refused(bundle.BundleExistsError, "NQX431", tmp_path / "notes"):
        migrate(source, tmp_path / "notes", overwrite=True)


def test_an_array_that_one_migration_rewrites_and_the_next_removes(tmp_path):
    def version(number, fields, *steps):
        data = {
            "language": "1",
            "schema": "lab.files",
            "version": number,
            "root": "State",
            "structs": {"State": {"fields": fields}},
        }
        if steps:
            data["migrations"] = [{"from": number - 1, "steps": [*steps]}]
        return document_from_data(data, "")

    w = {"w": {"type": "array", "dtype": "float64", "shape": [50]}}
    versions = series_of(
        [
            version(1, {**w, "a": "float32[2, 3]"}),
            version(2, {**w, "a": "float32[3, 2]"}, {"transpose": {"field": "a"}}),
            version(3, w, {"remove": {"field": "a", "undo_default": [[0, 0]] * 3}}),
        ]
    )
    arrays = {"w": np.arange(50.0), "a": np.arange(6, dtype="f4").reshape(2, 3)}
    path = bundle.write(tmp_path / "1", payload(versions.at(1), arrays))
    for to in (2, 3, 2, 1):
        done = migrate(path, tmp_path / f"{path.name}-{to}", to=to, schema=versions)
        assert done.linked
        path = done.out
        assert {d.severity for d in bundle.verify(path)} <= {"info"}
        held = bundle.read(path)
        assert np.array_equal(held.arrays["w"], np.arange(50.0))
        if to == 2 and path.name.count("-") == 1:
            name = held.document["manifest"]["fields"]["a"]["name"]
            assert np.array_equal(held.arrays[name], arrays["a"].T)
