"""The option ``--limits`` of all commands that read bundles or files of other programs."""

import numpy as np

from tests.builders import ROOT, every, invoke

BUNDLE = ROOT / "tests/golden/format-1/vmc_state_1"
SCHEMA = ROOT / "schemas/vmc_state"
#: The words of a call that reads the bundle, and its exit code where a limit is too small.
READERS = {
    "validate": (("validate", BUNDLE), 1),
    "verify": (("verify", BUNDLE), 1),
    "inspect": (("inspect", BUNDLE), 1),
    "inspect --stats": (("inspect", BUNDLE, "--stats"), 1),
    "report": (("report", BUNDLE, "--out", "page.html"), 1),
    "report of two": (("report", BUNDLE, BUNDLE, "--out", "page.html"), 1),
    "diff": (("diff", BUNDLE, SCHEMA / "v1.yaml"), 1),
    "diff --values": (("diff", BUNDLE, BUNDLE, "--values"), 1),
    "breaking": (("breaking", SCHEMA, "--against", BUNDLE), 2),  # it compared nothing
    "migrate": (("migrate", BUNDLE, "--dry-run", "--schema", SCHEMA), 1),
    "convert": (("convert", BUNDLE, "--out", "converted"), 1),
    "infer": (("infer", BUNDLE), 1),
}


@every("name", READERS)
def test_limits(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    words, code = READERS[name]
    refused = invoke(*words, "--limits", "nodes=3")
    assert "expected at most 3 nodes" in refused.output and "--limits" in refused.output
    assert refused.exit_code == code
    assert invoke(*words, "--limits", "nodes=3000", "--limits", "depth=300").exit_code == 0
    assert invoke(*words, "--limits", "nodes").exit_code == 2


def test_limits_of_a_foreign_file(tmp_path):
    file = tmp_path / "model.npz"
    np.savez_compressed(file, weight=np.zeros(1_000_000))
    few = ("--limits", "full_bytes=1000")
    for words in (("inspect", file), ("verify", file), ("infer", file), ("diff", file, file, "--values")):  # fmt: skip
        refused = invoke(*words, *few)
        assert "expected at most 1000 bytes" in refused.output, refused.output
        assert "--limits" in refused.output and refused.exit_code == 1
        assert invoke(*words).exit_code == 0


def test_limits_of_a_file_that_a_layout_is_checked_with(tmp_path):
    file = tmp_path / "model.npz"
    np.savez_compressed(file, weight=np.zeros(1_000_000))
    assert invoke("infer", file, "--id", "lab.model", "--out", tmp_path / "model").exit_code == 0
    [layout] = (tmp_path / "model/layouts").iterdir()
    words = ("schema", "lint", layout, "--file", file)
    refused = invoke(*words, "--limits", "full_bytes=1000")
    assert "expected at most 1000 bytes" in refused.output and refused.exit_code == 1
    assert invoke(*words).exit_code == 0
