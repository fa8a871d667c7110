import dataclasses
import errno
import functools
import json
from pathlib import Path

import pytest

from neuralqx_struct.cli import demo
from neuralqx_struct.cli.demo import free_folder, run
from neuralqx_struct.errors import StructError
from neuralqx_struct.references import shipped
from tests.builders import refused


def test_the_main_job(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "MORE_STEPS", 8)
    said, bars = [], []
    report = run(
        tmp_path / "demo", log=said.append, progress=lambda *step: bars.append(step), steps=12
    )
    text = "\n".join(said)
    assert report.difference == 0.0 and "bit-identical" in text
    assert abs(report.trained) < abs(report.exact) * 1.05 and report.exact == pytest.approx(
        -15.3226, abs=1e-4
    )
    assert bars[0][:2] == (1, 12) and bars[11][:2] == (12, 12) and len(bars) == 20
    for name in (
        "ckpt_v1",
        "ckpt_v3",
        "ckpt_resumed",
        "schemas/vmc_state/v3.yaml",
        "vmc_ising/train.py",
    ):
        assert (tmp_path / "demo" / name).exists()
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "neuralqx.vmc_state" in page
    assert said[-1].endswith("/demo/report.html")
    assert (
        json.loads((tmp_path / "demo/ckpt_v3/manifest.json").read_text())["schema"]["version"] == 3
    )
    json.dumps(dataclasses.asdict(report))


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with refused(StructError, "NQX400"):
        run(tmp_path, log=lambda line: None)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_full_disk_leaves_no_half_written_files(tmp_path, monkeypatch):
    def half(source, target, **_):
        Path(target).write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    copytree = functools.partial(demo.shutil.copytree, copy_function=half)
    monkeypatch.setattr(demo.shutil, "copytree", copytree)
    with refused(OSError, "No space left"):
        run(tmp_path / "demo", log=lambda line: None)
    assert list((tmp_path / "demo").iterdir()) == []


def test_the_folder_if_nobody_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(free_folder()) == "neuralqx-struct-demo"
    free_folder().mkdir()
    assert str(free_folder()) == "neuralqx-struct-demo-2"


def test_shipped_files():
    assert shipped("schemas/vmc_state/v1.yaml").is_file()
    with refused(FileNotFoundError, "nonsense"):
        shipped("nonsense")
