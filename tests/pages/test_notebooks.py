"""Views of notebooks: tables in HTML of what each object holds, with nothing of it as markup."""

import numpy as np
import pytest

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


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    make, parts = VIEWS[name]
    found = ReadPage(make()._repr_html_())
    assert found.seen[1][0] == "table"
    for part in parts:
        assert any(part in text for text in found.texts)


def test_hostile_names_are_shown_harmless(tmp_path):
    tree = {"<script>\u202e": np.ones(2), **{f"a{i}": i for i in range(1200)}}
    found = ReadPage(s.inspect(s.export(tree, tmp_path / "ckpt"))._repr_html_())
    assert "script" not in {name for name, _ in found.seen}
    assert any(text.endswith("202 more rows") for text in found.texts)
