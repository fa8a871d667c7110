"""Values of two checkpoints compared: every dtype, every kind of leaf, bundles and foreign files."""

import json
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import formats
from neuralqx_struct.errors import IntegrityError
from neuralqx_struct.tools.value_differences import diff_values
from tests.builders import every, invoke, report

NAN, INF = math.nan, math.inf


def saved(path, arrays):
    return formats.write(path, "msgpack", arrays)


def compared(folder, old, new):
    """The comparison of two arrays in foreign files."""
    paths = [saved(folder / name, {"w": array}) for name, array in (("a", old), ("b", new))]
    [leaf] = diff_values(*paths).leaves
    return leaf


NUMBERS = {
    # dtype: old, new, different, absolute, relative, NaN
    "floats": ("f4", [1, NAN, -0.0, INF], [1, NAN, 0.0, INF], 0, 0.0, 0.0, (1, 1)),
    "other": ("f8", [1, 2, NAN], [1.5, NAN, NAN], 2, 0.5, 1 / 3, (1, 2)),
    "infinite": ("f8", [INF, 1], [-INF, 1], 1, INF, INF, (0, 0)),
    "bfloat16": ("bfloat16", [1, 2], [1, 3], 1, 1.0, 1 / 3, (0, 0)),
    "float8": ("float8_e4m3fn", [1, NAN], [2, NAN], 1, 1.0, 0.5, (1, 1)),
    "complex": ("c8", [3 + 4j, 1], [0, 1], 1, 5.0, 1.0, (0, 0)),
    "infinite parts": ("c16", [complex(INF, 1)], [complex(INF, 2)], 1, INF, INF, (0, 0)),
    "int8": ("i1", [-128, 5], [127, 5], 1, 255, 255 / 128, (None, None)),
    "int4": ("int4", [-8, 5], [7, 5], 1, 15, 15 / 8, (None, None)),
    "int64": ("i8", [-(2**63)], [2**63 - 1], 1, 2**64 - 1, 2.0, (None, None)),
    "uint64": ("u8", [2**64 - 1], [2**64 - 2], 1, 1, 2**-64, (None, None)),
    "bool": ("?", [True, False], [False, False], 1, 1, 1.0, (None, None)),
}


@every("case", NUMBERS.values())
def test_numbers(tmp_path, case):
    dtype, old, new, different, absolute, relative, nans = case
    known = getattr(ml_dtypes, dtype, dtype)
    leaf = compared(tmp_path, np.array(old, known), np.array(new, known))
    assert leaf.state == ("changed" if different else "equal")
    assert (leaf.different, leaf.absolute) == (different, absolute)
    assert leaf.relative == pytest.approx(relative)
    assert (leaf.old_nan, leaf.new_nan) == nans
    assert leaf.size == len(old)


MIXED = {
    "precision": (np.ones(2, "f4"), np.ones(2, ml_dtypes.bfloat16), 0, 0.0),
    "integers": (np.array([2**53], "i8"), np.array([2.0], "f8"), 1, 2**53 - 2),
    "signs": (np.array([2**64 - 1], "u8"), np.array([-1], "i8"), 1, 2.0**64),
    "bools": (np.array([True]), np.array([3], "i1"), 1, 2),
    "complex": (np.array([1 + 1j]), np.array([1.0]), 1, 1.0),
}


@pytest.mark.parametrize(("old", "new", "different", "absolute"), MIXED.values(), ids=MIXED)
def test_other_dtypes_are_changes_with_numbers(tmp_path, old, new, different, absolute):
    leaf = compared(tmp_path, old, new)
    assert leaf.state == "changed"
    assert (leaf.different, leaf.absolute) == (different, absolute)


def test_shapes_and_empty_arrays(tmp_path):
    leaf = compared(tmp_path, np.ones((2, 3)), np.ones(6))
    assert (leaf.state, leaf.old, leaf.new) == ("changed", "float64[2, 3]", "float64[6]")
    assert leaf.different is None
    for name, dtype in (("f", "f4"), ("i", "i4")):
        empty = np.zeros((0, 3), dtype)
        (tmp_path / name).mkdir()
        leaf = compared(tmp_path / name, empty, empty)
        assert (leaf.state, leaf.size, leaf.different, leaf.absolute) == ("equal", 0, 0, 0)
    with pytest.raises(FileNotFoundError):
        diff_values(tmp_path / "a", tmp_path / "missing")


def test_large_arrays_are_compared_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("neuralqx_struct.tools.value_differences._PIECE", 7)
    old = np.arange(100, dtype="f4").reshape(10, 10)
    new = old.copy()
    new[9, 9], new[0, 0], new[5, 5] = 90, NAN, 56
    leaf = compared(tmp_path, old, np.asfortranarray(new))
    assert (leaf.different, leaf.absolute, leaf.new_nan) == (3, 9.0, 1)


def tree(**changes):
    values = {
        "params": {"kernel": jnp.ones((2, 3)), "bias": np.zeros(3), "name": np.array(["a", "b"])},
        "key": jax.random.key(1),
        "scalar": np.float32(2),
        "zeros": np.zeros(4),
        "when": np.array(["2024-01-01", "NaT"], "M8[D]"),
        "step": 3,
        "rate": NAN,
        "text": "x" * 300,
        "none": None,
        1: (True, 1 + 2j, b"a"),
    }
    return values | changes


def test_equal_bundles(tmp_path):
    paths = [
        s.export(tree(), tmp_path / name, store=store)
        for name, store in (("a", "npz"), ("b", "safetensors"))
    ]
    found = s.diff_values(*paths)
    assert found.equal
    assert found.findings == []
    assert len(found.leaves) == 14
    assert str(found) == f"{paths[0]} and {paths[1]}: 14 equal"


CHANGES = {
    "key": ({"key": jax.random.key(2)}, "key", "prng_key[threefry2x32]"),
    "impl": (
        {"key": jax.random.key(1, impl="rbg")},
        "key",
        "prng_key[threefry2x32], got prng_key[rbg",
    ),
    "scalar": ({"scalar": np.float32(3)}, "scalar", "numpy float32"),
    "kind": ({"scalar": np.full((), 2, "f4")}, "scalar", "numpy float32, got float32[]"),
    "zeros": ({"zeros": np.array([0, 0, 0, 1.0])}, "zeros", "float64[4]"),
    "static": ({"step": 4}, "step", "expected int = 3, got int = 4"),
    "type": ({"step": 3.0}, "step", "expected int = 3, got float = 3.0"),
    "bool": ({"step": True}, "step", "expected int = 3, got bool = True"),
    "float": ({"rate": 1.0}, "rate", "float = 1.0"),
    "text": ({"text": "x" * 301}, "text", "expected str = 'xxx"),
    "none": ({"none": 0}, "none", "expected null, got int = 0"),
    "date": ({"when": np.array(["2024-01-02", "NaT"], "M8[D]")}, "when", "differ"),
    "array": ({"step": np.array(3)}, "step", "expected int = 3, got int64[]"),
    "removed": ({"gone": 1}, "gone", "int = 1"),
}


@every(("change", "name", "message"), CHANGES.values())
def test_changed_bundles(tmp_path, change, name, message):
    old = tree(gone=1) if name == "gone" else tree()
    new = tree() if name == "gone" else tree(**change)
    found = diff_values(s.export(old, tmp_path / "a"), s.export(new, tmp_path / "b"))
    [finding] = found.findings
    assert (finding.code, finding.path) == ("NQX433", f"$['{name}']")
    assert message in finding.message
    assert found.summary.endswith("1 removed" if name == "gone" else "1 changed")


def test_a_bundle_and_a_foreign_file(tmp_path):
    params = {"dense": {"kernel": np.ones((2, 3)), "bias": np.zeros(3)}, "n": 3, "rate": INF}
    path = s.export(params, tmp_path / "a")
    arrays = {"dense.kernel": np.ones((2, 3)), "dense.bias": np.full(3, 0.25), "more": np.ones(1)}
    form = {
        "tree": {
            "dense": {"kernel": "array", "bias": "array"},
            "more": "array",
            "n": 3,
            "rate": "float:inf",
        }
    }
    other = formats.write(tmp_path / "b", "msgpack", arrays, form=form)
    found = diff_values(path, other)
    states = {leaf.path: leaf.state for leaf in found.leaves}
    assert states == {
        "dense.kernel": "equal",
        "dense.bias": "changed",
        "n": "equal",
        "rate": "equal",
        "more": "added",
    }
    assert {leaf.path: leaf.state for leaf in diff_values(other, path).leaves}["more"] == "removed"


def test_text_and_dates_of_foreign_files_are_equal_or_not(tmp_path):
    dates = np.array(["2020-01-01", "NaT"], "M8[D]")
    old = {"words": np.array(["a", "b"]), "dates": dates, "mixed": np.array(["a"])}
    new = {"words": np.array(["a", "c"]), "dates": dates, "mixed": np.array([b"a"])}
    np.savez(tmp_path / "a.npz", **old)
    np.savez(tmp_path / "b.npz", **new)
    found = diff_values(tmp_path / "a.npz", tmp_path / "b.npz")
    assert {leaf.path: leaf.different for leaf in found.leaves} == {
        "words": 1,
        "dates": 0,
        "mixed": 1,
    }


def test_arrays_that_cannot_be_read(tmp_path):
    path = s.export({"w": np.ones(100), "b": np.ones(1)}, tmp_path / "a")
    other = s.export({"w": np.ones(100), "b": np.ones(1)}, tmp_path / "b")
    data = bytearray((other / "arrays.npz").read_bytes())
    place = data.index(np.ones(100).tobytes())
    data[place] ^= 1
    (other / "arrays.npz").write_bytes(bytes(data))
    found = diff_values(path, other)
    assert {leaf.path: leaf.state for leaf in found.leaves} == {
        "$['w']": "unread",
        "$['b']": "equal",
    }
    assert [d.code for d in found.findings] == ["NQX407"]
    assert not found.equal
    (other / "manifest.json").write_text("{}")
    with pytest.raises((IntegrityError, s.SerializationError)):
        diff_values(path, other)


def test_the_command(tmp_path):
    old = s.export({"w": np.ones(3), "n\n::error::x": 1}, tmp_path / "a")
    new = s.export({"w": np.array([1, 2, NAN]), "n\n::error::x": 2}, tmp_path / "b")
    assert invoke("diff", old, old, "--values").exit_code == 0
    result = invoke("diff", old, new, "--values")
    assert result.exit_code == 1
    assert (
        "$['w']: expected the elements of float64[3], got 2 that differ [NQX433]" in result.stdout
    )
    assert "largest difference 1, relative 0.5" in result.stdout
    assert "0 NaN, now 1" in result.stdout
    assert "\n::error" not in result.stdout
    result, found = report("diff", old, new, "--values")
    assert result.exit_code == 1
    assert found["ok"] is False
    assert [leaf["state"] for leaf in found["values"]] == ["changed", "changed"]
    assert invoke("diff", old, tmp_path / "none", "--values").exit_code == 2
    assert json.loads(json.dumps(found["values"])) == found["values"]


def test_thousands_of_differences_are_printed_as_a_screen_with_the_largest_first(tmp_path):
    tree = {f"a{i}": np.array([1.0, i]) for i in range(3_000)}
    old = s.export({**tree, "b": np.ones(2)}, tmp_path / "a")
    changed = {name: value * [1 + 1 / 2**i, 1] for i, (name, value) in enumerate(tree.items())}
    new = s.export({**changed, "b": np.ones(3)}, tmp_path / "b")
    lines = invoke("diff", old, new, "--values").stdout.splitlines()
    assert len(lines) < 45
    assert "$['b']" in lines[0] and "$['a0']" in lines[1] and "$['a1']" in lines[3]
    assert lines[-2] == "and 34 more; --format json lists all"
    _, found = report("diff", old, new, "--values")
    assert len(found["diagnostics"]) == 54 and len(found["values"]) == 3_001


# --- two versions of one schema --------------------------------------------------------------------------------------

V1 = """language: "1"
schema: lab.net
version: 1
root: Net
structs: {Net: {fields: {w: "float32[n]", step: int}}}
"""
V2 = (
    V1.replace("version: 1", "version: 2").replace("w:", "weights:")
    + """migrations:
  - from: 1
    steps: [{rename: {field: w, to: weights}}]
"""
)


@pytest.fixture
def versions(tmp_path):
    """A bundle of version 1 and what a migration made of it."""
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "v1.yaml").write_text(V1)
    (folder / "v2.yaml").write_text(V2)
    old = (
        s.load_schema(folder).at(1).Net(w=np.arange(4, dtype="f4"), step=3).export(tmp_path / "old")
    )
    s.migrate(old, tmp_path / "new", schema=folder)
    return tmp_path / "old", tmp_path / "new", folder


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_older_of_two_versions_is_brought_to_the_newer_first(versions, order):
    paths = [versions[each] for each in order]
    found = s.diff_values(*paths)
    assert found.equal and {leaf.path for leaf in found.leaves} == {"$.weights", "$.step"}
    [note] = found.findings
    assert (note.code, note.severity, note.file) == ("NQX433", "info", str(versions[0]))
    assert "lab.net" in note.message and "version 1 to 2" in note.message
    page = s.report(*paths)
    assert "lab.net from version 1 to 2" in page
    assert invoke("diff", *paths, "--values").exit_code == 0


def test_changed_numbers_of_two_versions_are_found(versions, tmp_path):
    old, new, folder = versions
    s.load_schema(folder).Net(weights=np.ones(4, "f4"), step=3).export(new, overwrite=True)
    done = invoke("diff", old, new, "--values")
    assert done.exit_code == 1
    assert "$.weights" in done.stdout and "$.w:" not in done.stdout


def test_versions_without_steps_are_compared_as_they_are_stored(versions):
    old, new, _ = versions
    alone = V2.partition("migrations")[0]
    s.load_schema(alone).Net(weights=np.arange(4, dtype="f4"), step=3).export(new, overwrite=True)
    found = s.diff_values(old, new)
    assert {leaf.path: leaf.state for leaf in found.leaves} == {
        "$.w": "removed",
        "$.weights": "added",
        "$.step": "equal",
    }
    note = found.findings[0]
    assert (note.code, note.severity) == ("NQX433", "warning")
    assert "lab.net" in note.message and "version 1 to 2" in note.message
