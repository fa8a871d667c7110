"""Reports: everything of a checkpoint, a schema or a comparison is in the page, and nothing of it is markup."""

import jax
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct import formats
from tests.builders import ROOT, ReadPage, edit, invoke

GOLDEN = ROOT / "tests" / "golden" / "format-1" / "vmc_state_1"
HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m"


def headings(page):
    found = ReadPage(page)
    assert [dict(a) for n, a in found.seen if n == "meta"][1]["content"].startswith(
        "default-src 'none'"
    )
    return [attributes["id"] for name, attributes in found.seen if name == "section"]


def test_a_bundle_with_a_schema():
    page = s.report(GOLDEN)
    assert headings(page) == [
        "state",
        "sizes",
        "content",
        "dims",
        "structs",
        "versions",
        "metadata",
    ]
    for part in ("$.W_re", "float64[2]", "n_sites", "this checkpoint", "NaN 50.000%", "trainable"):
        assert part in "".join(ReadPage(page).texts) or part in page


def test_sizes_of_dims_are_those_of_the_payload(tmp_path):
    schema = s.load_schema(ROOT / "schemas" / "vmc_state")
    state = s.example(schema.VMCState, dims={"n_sites": 7, "n_chains": 4})
    page = s.report(state.export(tmp_path / "ckpt"))
    assert "<td>n_sites</td><td></td><td>2</td><td></td><td>7</td>" in page


def test_a_schema():
    page = s.report(ROOT / "schemas" / "vmc_state")
    assert headings(page) == ["dims", "structs", "versions"]
    assert page.index("Version 3") < page.index("Version 2") < page.index("Version 1")
    assert "split: {field: " in page
    assert headings(s.report(ROOT / "schemas" / "vmc_state" / "v1.yaml"))[-1] == "versions"
    with pytest.raises(FileNotFoundError):
        s.report("nothing")


NET = """
language: "1"
schema: test.net
version: 1
root: Net
structs:
  Net:
    fields: {w: "float32[n]"}
"""


def test_what_is_not_there_has_no_section(tmp_path):
    file = tmp_path / "v1.yaml"
    file.write_text(NET)
    assert headings(s.report(file)) == ["structs", "versions"]
    assert headings(s.report(s.export({"a": 1}, tmp_path / "plain"))) == ["state", "content"]


CHANGES = {
    "another schema": (lambda manifest: manifest["schema"].update(id="test.other"), False),
    "another version": (lambda manifest: manifest["schema"].update(version=7), False),
    "a list": (lambda m: m.update(manifest={"__kind__": "list", "items": [m["manifest"]]}), True),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_page_shows_what_it_knows_of_a_bundle_that_is_not_as_its_schema_says(tmp_path, what):
    change, is_known = CHANGES[what]
    net = s.load_schema(NET).Net
    path = net(w=np.ones(3, "float32")).export(tmp_path / "ckpt")
    edit(path, change)
    page = s.report(path)
    assert ("structs" in headings(page)) is is_known
    assert "[NQX4" in "".join(ReadPage(page).texts)


def test_a_bundle_behind_a_url():
    path = s.export({"a": np.arange(3.0)}, "memory://report/ckpt", overwrite=True)
    assert headings(s.report(str(path))) == ["state", "sizes", "content"]


def test_random_bits_are_no_statistics(tmp_path):
    tree = {"w": np.ones(2), "key": jax.random.key(7), "step": np.int32(9)}
    path = s.export(tree, tmp_path / "ckpt")
    root, _, key, step = s.inspect(path, stats=True).rows
    assert key.statistics is None
    assert (root.plus(key).plus(step).statistics, step.statistics.minimum) == (step.statistics, 9)
    assert "1 … 1</td><td>1 ± 0" in s.report(path).partition("dict of 3")[2].partition("<tr>")[0]


def test_names_values_and_metadata_are_shown_harmless(tmp_path):
    tree = {HOSTILE: np.ones(3), "text": HOSTILE}
    path = s.export(tree, tmp_path / "ckpt", metadata={HOSTILE: HOSTILE})
    page = s.report(path)
    assert "img" not in {name for name, _ in ReadPage(page).seen}
    assert not set(page) & set("\x1b\u202e")
    assert "onerror=alert(1)" in "".join(ReadPage(page).texts)


def test_damage_is_part_of_the_page(tmp_path):
    path = s.export({"a": np.arange(3.0), "b": np.ones(4)}, tmp_path / "ckpt")
    file = path / "arrays.npz"
    data = bytearray(file.read_bytes())
    data[data.index(np.arange(3.0).tobytes()) + 9] ^= 1
    file.write_bytes(data)
    texts = "".join(ReadPage(s.report(path)).texts)
    assert "[NQX407]" in texts
    assert "1 … 1" in texts  # the other array has its statistics
    sound = s.export({"a": np.arange(3.0), "b": np.ones(4)}, tmp_path / "sound")
    assert headings(s.report(sound, path)) == ["values", "damage", "first", "second"]


def test_a_foreign_file_and_a_comparison(tmp_path):
    files = []
    for name, last in (("a", 1.0), ("b", 2.0)):
        file = tmp_path / f"{name}.safetensors"
        formats.write(file, "safetensors", {"l.w": np.array([0.5, last]), "l.b": np.ones(2)})
        files.append(file)
    assert headings(s.report(files[0])) == ["state", "sizes", "content"]
    page = s.report(*files)
    assert headings(page) == ["values", "first", "second"]
    assert "50.000%" in page
    assert headings(s.report(GOLDEN, GOLDEN)) == ["values", "schemas", "first", "second"]


def test_the_commands(tmp_path):
    out = tmp_path / "report.html"
    assert invoke("report", GOLDEN, "--out", out).stdout == f"written to {out}\n"
    assert out.read_text(encoding="utf-8") == s.report(GOLDEN)
    assert invoke("report", tmp_path / "nothing", "--out", out).exit_code == 2
