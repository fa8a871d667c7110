"""Views of notebooks: tables in HTML of what each object holds, with nothing of it as markup."""

import numpy as np
import pytest
import yaml

import neuralqx_struct as s
from tests.builders import ROOT, ReadPage

SCHEMA = ROOT / "schemas" / "vmc_state"
GOLDEN = ROOT / "tests" / "golden" / "format-1" / "vmc_state_1"
VIEWS = {
    "inspection": (lambda: s.inspect(GOLDEN, stats=True), ["$.W_re", "trainable", "NaN: 1"]),
    "diff": (lambda: s.diff(SCHEMA / "v1.yaml", SCHEMA / "v2.yaml"), ["NQX208", "info"]),
    "no diff": (lambda: s.diff(SCHEMA, SCHEMA), ["severity"]),
    "plan": (
        lambda: s.migrate(GOLDEN, "out", schema=SCHEMA, dry_run=True).plan,
        ["1 → 2", "2 → 3", "streaming"],
    ),
    "schema": (lambda: s.load_schema(SCHEMA), ["Sampler", "int8[n_chains, n_sites]"]),
}


HOSTILE = "<script>\u202e\x1b[31m\u200b\n::error::"


def series(folder):
    made = s.Series(folder, keep_best=("energy", "min"))
    for step, energy in enumerate([3.0, 1.0, 2.0]):
        made.save(step, [step], metrics={"energy": energy, HOSTILE: 0.5})
    return made


def test_a_series_shows_its_steps_and_metrics(tmp_path):
    found = ReadPage(series(tmp_path / "series")._repr_html_())
    rows = ["0", "0.5", "3", "1", "0.5", "1", "best", "2", "0.5", "2", "latest"]
    assert found.texts[-11:] == rows


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    make, parts = VIEWS[name]
    found = ReadPage(make()._repr_html_())
    assert [name for name, _ in found.seen[:3]] == ["style", "div", "table"]
    for part in parts:
        assert any(part in text for text in found.texts)


def hostile_schema(number, **members):
    return {
        "language": "1",
        "schema": "lab.a",
        "version": number,
        "root": "A",
        "structs": {"A": {"fields": {"x": {"type": "str", "doc": HOSTILE}, **members}}},
        "migrations": [{"from": number - 1, "steps": [{"add": {"field": "y", "default": HOSTILE}}]}]
        if number > 1
        else [],
    }


def test_hostile_names_are_shown_harmless(tmp_path):
    folder = tmp_path / HOSTILE.replace("/", "")
    folder.mkdir()
    for number, more in ((1, {}), (2, {"y": {"type": "str", "doc": HOSTILE}})):
        text = yaml.safe_dump(hostile_schema(number, **more), sort_keys=False)
        (folder / f"v{number}.yaml").write_text(text)
    schema = s.load_schema(folder)
    old = schema.at(1).A(x=HOSTILE).export(tmp_path / "old")
    tree = {HOSTILE: np.ones(2), **{f"a{i}": i for i in range(1200)}}
    views = (
        s.inspect(s.export(tree, folder / "ckpt")),
        schema,
        s.diff(folder / "v1.yaml", folder / "v2.yaml"),
        s.migrate(old, tmp_path / "new", schema=folder, dry_run=True).plan,
        series(folder / "series"),
    )
    for view in views:
        page = view._repr_html_()
        assert "script" not in {name for name, _ in ReadPage(page).seen}
        assert not set(page) & set("\x1b\u202e\u200b\n")
    assert "202 more rows" in views[0]._repr_html_()
