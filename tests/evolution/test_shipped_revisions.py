"""Revisions of the schemas that ship: each next version without its migrations is an edit, and the proposal replaces them."""

import shutil

import jax
import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.errors import has_errors
from neuralqx_struct.evolution.revision import revise
from neuralqx_struct.evolution.suggestions import suggest
from neuralqx_struct.evolution.suggestions.work import loses_values
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.tools.linting import lint
from tests.builders import ROOT, answered, every

PAIRS = [
    (folder.parent.name, version)
    for folder in sorted(ROOT.glob("schemas/*/v1.yaml"))
    for version in load_series(folder.parent).versions[1:]
]


@pytest.fixture(scope="module")
def revised(tmp_path_factory):
    """Folders in which a version has the proposed migration in place of its own, each made once."""
    made = {}

    def of(name, version):
        if (name, version) not in made:
            folder = tmp_path_factory.mktemp(f"{name}_{version}") / name
            folder.mkdir()
            for earlier in range(1, version):
                shutil.copy(ROOT / "schemas" / name / f"v{earlier}.yaml", folder)
            edited = load_series(ROOT / "schemas" / name).at(version)
            revision = revise(folder, edited=edited.model_copy(update={"migrations": []}))
            (folder / f"v{version}.yaml").write_text(answered(revision.text))
            made[name, version] = folder
        return made[name, version]

    return of


def same(a, b):
    """True for trees of dicts, lists and arrays that are equal bit by bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "dtype"):
        keys = jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key)
        words = [np.asarray(jax.random.key_data(x) if keys else x).tobytes() for x in (a, b)]
        return a.dtype == b.dtype and words[0] == words[1]
    return a == b


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_the_proposal_lints(name, version, revised):
    found = lint(revised(name, version))
    assert not has_errors(found), "\n".join(map(str, found))


@every(("name", "version"), PAIRS)
def test_the_proposal_is_lossless_where_the_written_migration_is(name, version):
    series = load_series(ROOT / "schemas" / name)
    written = [item.step for item in series.at(version).migrations[0].steps]
    found = suggest(series.at(version - 1), series.at(version))
    proposed = [step for each in found for step in each.answers[0].steps]
    lossy = [step.field for step in written if loses_values(step)]
    assert [step.field for step in proposed if loses_values(step)] == lossy


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_the_proposal_migrates_a_payload_as_the_written_migration_does(
    name, version, revised, tmp_path
):
    folder = revised(name, version)
    old = s.example(s.load_schema(folder).at(version - 1).root)
    if version == 2 and name == "vmc_state":
        old = old.replace(samples=np.sign(old.samples - 0.5))  # the next version holds spins
    old.export(tmp_path / "old")
    for out, schema in (("written", ROOT / "schemas" / name), ("proposed", folder)):
        s.migrate(tmp_path / "old", tmp_path / out, to=version, schema=schema)
        s.migrate(tmp_path / out, tmp_path / f"{out}_back", to=version - 1, schema=schema)
    for suffix in ("", "_back"):
        trees = [
            s.load(tmp_path / f"{out}{suffix}", raw=True, as_numpy=True)
            for out in ("written", "proposed")
        ]
        assert same(*trees)
