"""Settings for all tests: Hypothesis profiles, a CPU with several virtual devices, a clean registry of schemas."""

import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import pytest
import yaml

from tests.builders import ROOT, cases, registered_inside

hypothesis.settings.register_profile(
    "ci",
    deadline=None,
    max_examples=cases(60),
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("night", hypothesis.settings.get_profile("ci"))
hypothesis.settings.register_profile(
    "thorough", hypothesis.settings.get_profile("ci"), derandomize=False, database=None
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def vmc_folder() -> Path:
    """The example schema with its three versions."""
    return ROOT / "schemas" / "vmc_state"


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Leaves out fsync, a third of the time of some tests; processes of `tests/programs/` call it as users do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: os.fstat(descriptor) and None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _each_json_schema_is_checked_once() -> Iterator[None]:
    """Leaves out that `jsonschema.validate` checks a schema again that it has checked: it takes longer than most values do."""
    import jsonschema

    seen: set[tuple[type, str]] = set()
    with pytest.MonkeyPatch.context() as patched:
        for judge in (jsonschema.Draft7Validator, jsonschema.Draft202012Validator):
            patched.setattr(judge, "check_schema", _once(judge, judge.check_schema, seen))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_context_of_mlir_for_each_thread() -> Iterator[None]:
    """JAX makes a context for each function that it lowers: a tenth of the time of tests that compile, where few are large.

    By night, it works as it does for users.
    """
    lowering = sys.modules.get("jax._src.interpreters.mlir")
    make = getattr(lowering, "make_ir_context", None)  # another JAX may have none
    if make is None or os.environ.get("HYPOTHESIS_PROFILE"):
        yield
        return
    made = threading.local()

    def context() -> Any:
        if not hasattr(made, "context"):
            made.context = make()
        return made.context

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lowering, "make_ir_context", context)
        yield


def _once(
    judge: type, check: Callable[..., None], seen: set[tuple[type, str]]
) -> Callable[..., None]:
    def checked(schema: Any, *rest: Any, **more: Any) -> None:
        key = (judge, json.dumps(schema, sort_keys=True, default=repr))
        if key not in seen:
            check(schema, *rest, **more)
            seen.add(key)

    return checked


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """Undoes what a test registers: classes, documents, hooks, functions of steps and rows of tables."""
    with registered_inside():
        yield


@pytest.fixture(params=["python", "c"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the test once with each of PyYAML's parsers."""
    from neuralqx_struct.schema.text import yaml_reader

    chosen = yaml.SafeLoader if request.param == "python" else getattr(yaml, "CSafeLoader", None)
    if chosen is None:
        pytest.skip("PyYAML was built without its C parser")
    monkeypatch.setattr(yaml_reader, "yaml_parser", lambda: chosen)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: processes that write much, or often, wait long for a disk."""
    memory = Path("/dev/shm")
    is_usable = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30
    with tempfile.TemporaryDirectory(dir=memory if is_usable else tmp_path) as folder:
        yield Path(folder)
