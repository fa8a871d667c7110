"""Fixtures of pytest for checkpoints and schemas: bundles of test objects, and golden bundles of schemas.

Pytest finds the plugin where the package is installed. It imports neither JAX nor other modules of the package before a
fixture is used, and ``nqx_golden`` works without JAX.

Example:
    >>> def test_state(nqx_bundle):
    ...     path = nqx_bundle(make_state())  # saved, verified, validated, loaded and compared
    >>> def test_old_checkpoints(nqx_schema, nqx_golden):  # once for each schema of the project
    ...     nqx_golden(nqx_schema)
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from neuralqx_struct.schema.series import Series

_OPTION = "--nqx-update-golden"
_SCHEMAS = "nqx_schemas"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that writes golden bundles, and the setting with the folder of schemas."""
    group = parser.getgroup("neuralqx-struct")
    about = "write golden bundles that are missing, and what nqx_golden expects of them"
    group.addoption(_OPTION, action="store_true", default=False, help=about)
    about = "folder of all schemas; by default that of the project file, or schemas"
    parser.addini(_SCHEMAS, about, default="")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test with the argument ``nqx_schema`` once for each schema."""
    if "nqx_schema" in metafunc.fixturenames:
        folders = _schema_folders(metafunc.config)
        metafunc.parametrize("nqx_schema", folders, ids=[folder.name for folder in folders])


def _schema_folders(config: pytest.Config) -> list[Path]:
    """The folders of all schemas.

    Raises:
        UsageError: There is none.
    """
    from neuralqx_struct.schema.series import schema_folders
    from neuralqx_struct.tools.project import find_project

    given = config.getini(_SCHEMAS)
    top = config.rootpath / given if given else find_project().schemas
    folders = [folder for folder in schema_folders(top) if folder != top]
    if not folders:
        message = f"{top}: expected a folder of schemas, got none; set {_SCHEMAS} in the settings of pytest"
        raise pytest.UsageError(message)
    return folders


@pytest.fixture
def nqx_bundle(tmp_path: Path) -> Callable[..., Path]:
    """Saves an object as a bundle, and checks that it comes back: ``nqx_bundle(obj, name="ckpt", cls=None, **options)``.

    Every byte is verified, the manifest is validated, and the loaded object is saved again and compared. ``cls`` is the
    class to load, where the bundle does not name one; ``options`` are those of ``export``. Returns the path.
    """

    def save(obj: Any, name: str = "ckpt", *, cls: type | None = None, **options: Any) -> Path:
        import neuralqx_struct as s

        path = Path(s.export(obj, tmp_path / name, **options))
        _refuse(path, [*s.verify(path), *s.validate(path)])
        loaded = s.load(path, load_cls=cls)
        again = s.export(loaded, tmp_path / f"{name}-loaded", **options)
        _require_equal(path, Path(again))
        return path

    return save


@pytest.fixture
def nqx_golden(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Checks the golden bundles of a schema: ``nqx_golden("schemas/state", trust=())``.

    Each frozen version has a bundle in ``golden/``, as ``schema freeze --golden`` writes it. It is intact, of its version,
    and migrates to the newest one with the values in ``golden/head/``: a changed step or function is found by other
    values. With the option ``--nqx-update-golden`` missing bundles and changed values are written instead.
    """
    update = bool(request.config.getoption(_OPTION))

    def check(schema: str | Path, *, trust: Iterable[str] = ()) -> None:
        from neuralqx_struct.schema.lock import read_lock
        from neuralqx_struct.schema.series import load_series
        from neuralqx_struct.tools.history import golden_findings, golden_place

        folder, trusted = Path(schema), tuple(trust)
        if update:
            from neuralqx_struct.checkpoint.golden import write_golden

            write_golden(folder, trust=trusted)
        series = load_series(folder)
        versions = [
            version
            for version in series.versions
            if version in read_lock(folder) or golden_place(folder, version).exists()
        ]
        if not versions:
            pytest.fail(
                f"{folder}: no version is frozen; run `neuralqx-struct schema freeze {folder}`"
            )
        found = [f for version in versions for f in golden_findings(series, version, trusted)]
        _refuse(folder, found)
        for version in versions:
            if version != series.head.version:
                _check_values(series, version, trusted, tmp_path, update=update)

    return check


def _check_values(
    series: Series, version: int, trust: tuple[str, ...], scratch: Path, *, update: bool
) -> None:
    """Compares the migrated golden bundle of one version with the stored one."""
    from neuralqx_struct.tools.history import golden_place
    from neuralqx_struct.tools.migration import migrate

    place = golden_place(series.folder or Path(), version)
    stored = place.parent / "head" / place.name
    out = scratch / f"{series.id}-{version}"
    shutil.rmtree(out, ignore_errors=True)
    migrate(place, out, schema=series, trust=trust)
    if update:
        shutil.rmtree(stored, ignore_errors=True)
        shutil.copytree(out, stored)
    elif stored.exists():
        _require_equal(stored, out)
    else:
        pytest.fail(f"{stored}: expected the migrated bundle, got none; run pytest {_OPTION}")


def _refuse(path: Path, found: Iterable[Any]) -> None:
    """Fails for findings about a path."""
    lines = [str(each) for each in found if each.severity != "info"]
    if lines:
        pytest.fail("\n".join([f"{path}:", *lines]), pytrace=False)


def _require_equal(expected: Path, got: Path) -> None:
    """Fails for bundles with different values."""
    from neuralqx_struct.tools.value_differences import diff_values

    found = diff_values(expected, got)
    if not found.equal:
        pytest.fail(f"expected the values of {expected}, got others\n{found}", pytrace=False)
