"""The main job, end to end, on a real run: train, export, validate, inspect, diff, migrate, load, prove, go on.

Trains the variational Monte Carlo example under version 1 of its schema and brings the checkpoint to version 3. Each
step uses the public functions that a user would call, and prints the command that does the same by hand.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from neuralqx_struct.errors import StructError, shell_word
from neuralqx_struct.places.names import entries
from neuralqx_struct.references import shipped
from neuralqx_struct.schema.text.loader import replace_text

Progress = Callable[[int, int, str], None]

STEPS = 120
MORE_STEPS = 40
#: Tolerance of steps that compute; the steps of this schema only move and reinterpret numbers.
TOLERANCE = 1e-6
_LAST = 10


@dataclass(frozen=True)
class DemoReport:
    """The figures of the demonstration.

    Attributes:
        exact: Ground-state energy by exact diagonalisation.
        trained: Energy of the trained state, the mean of the last steps.
        relative_error: Of ``trained`` against ``exact``.
        resumed: Energy after training on from the migrated checkpoint.
        difference: Largest relative difference of the local energies of the same samples before and after migration.
        bundle: The exported bundle, version 1.
        migrated: The migrated bundle, version 3.
        report: A page about the last checkpoint.
        seconds: Time the whole took.
    """

    exact: float
    trained: float
    relative_error: float
    resumed: float
    difference: float
    bundle: str
    migrated: str
    report: str
    seconds: float


def free_folder() -> Path:
    """The default folder: a new one here, never one that is in use."""
    path, number = Path("neuralqx-struct-demo"), 1
    while path.exists():
        number += 1
        path = Path(f"neuralqx-struct-demo-{number}")
    return path


def run(
    folder: Path,
    *,
    log: Callable[[str], None] = print,
    progress: Progress | None = None,
    steps: int = STEPS,
) -> DemoReport:
    """Runs the demonstration.

    Args:
        folder: Where everything is written; must not exist, or be empty.
        log: Gets each line of the account.
        progress: Called with finished steps, all steps and a word on them.
        steps: Optimisation steps of the first training.

    Returns:
        The figures.

    Raises:
        StructError: The folder is in use, or a step did not do its work.
    """
    began = time.perf_counter()
    if folder.exists() and (not folder.is_dir() or entries(folder)):
        raise StructError(
            "expected a new or an empty folder, got one that is in use",
            code="NQX400",
            file=str(folder),
            hint="name another: neuralqx-struct demo FOLDER",
        )
    folder.mkdir(parents=True, exist_ok=True)
    schemas = folder / "schemas" / "vmc_state"
    without_cache = shutil.ignore_patterns("__pycache__")
    try:
        for name in ("vmc_state", "struct-schema", "manifest"):
            shutil.copytree(shipped(f"schemas/{name}"), schemas.parent / name)
        shutil.copytree(shipped("examples/vmc_ising"), folder / "vmc_ising", ignore=without_cache)
    except OSError:  # such as a full disk: leave no half-written files
        for made in ("schemas", "vmc_ising"):
            shutil.rmtree(folder / made, ignore_errors=True)
        raise

    import jax
    import numpy as np

    import neuralqx_struct as s

    ising, train, settings = _example()
    schema = s.load_schema(schemas)
    first, newest = schema.at(1), schema
    log(f"Schema {schema.id}, versions {', '.join(map(str, schema.versions))}: {schemas}")
    log(by_hand("schema", "lint", schemas))

    log(
        f"\n1. Train under version 1: {settings.DEFAULTS['n_sites']} sites, {steps} steps on {jax.default_backend()}"
    )
    state = first.root(**train.initial_fields_v1(**settings.DEFAULTS))
    state = train.train(state, train.V1, steps, _bar(progress, steps, 0))
    exact = float(ising.exact_energy(settings.DEFAULTS["n_sites"], settings.DEFAULTS["h"]))
    trained = float(np.mean(state.E_hist[-_LAST:]))
    error = abs(trained - exact) / abs(exact)
    log(f"  energy {trained:.4f}, exact {exact:.4f}, relative error {error:.2e}")

    log(
        in_python(
            folder,
            f"state = s.load_schema({str(schemas)!r}).at(1).root(**train.initial_fields_v1(**settings.DEFAULTS))",
        )
    )
    log(f"             state = train.train(state, train.V1, {steps})")
    bundle = state.export(folder / "ckpt_v1", metadata={"run": "demo", "exact_energy": exact})
    log(f"\n2. Export: {bundle}")
    log(f"  in Python: state.export({str(folder / 'ckpt_mine')!r})")

    log("\n3. Validate manifest.json against the published JSON Schema and its own schema")
    _validate(bundle)
    log("  valid")
    log(by_hand("validate", bundle))

    log("\n4. Inspect")
    log(indent(str(s.inspect(bundle)), "  "))
    log(by_hand("inspect", bundle))

    log(
        "\n5. What changed from version 1 to version 3, field by field; the migrations of v2.yaml and v3.yaml cover all of it"
    )
    for change in s.diff(first.document, newest.document):
        log(indent(str(change), "  "))
    log(by_hand("diff", schemas / "v1.yaml", schemas / "v3.yaml"))

    migrated = folder / "ckpt_v3"
    s.migrate(bundle, migrated, to=3, schema=schemas)
    log(f"\n6. Migrate to version 3: {migrated}")
    log(by_hand("migrate", bundle, "--to", 3, "--out", folder / "ckpt_again", "--schema", schemas))

    loaded: Any = newest.root.load(migrated)
    directly = newest.root.load(bundle)  # an old version is migrated while loading, too
    log(
        f"\n7. Load as the class of version 3: {type(loaded).__name__} with {loaded.n_parameters} parameters"
    )
    log(f"  in Python: state = s.load_schema({str(schemas)!r}).load({str(migrated)!r})")
    if loaded != directly:
        raise StructError(
            "expected the same state from the migrated bundle and from the old one, got two",
            code="NQX422",
        )

    before = train.energies_of(state, train.V1, state.samples)
    after = train.energies_of(loaded, train.V3, state.samples)
    difference = float(np.max(np.abs(before - after) / np.abs(before)))
    same = (
        "bit-identical" if before.tobytes() == after.tobytes() else f"equal within {difference:.1e}"
    )
    if difference > TOLERANCE:
        raise StructError(
            f"expected the energies of the same samples to agree within {TOLERANCE}, got {difference:.1e}",
            code="NQX422",
        )
    log(
        f"\n8. The wave function is the same: {before.size} local energies of the same samples are {same}"
    )

    log("  in Python: train.energies_of(state, train.V3, samples)")
    log(f"\n9. Go on training from the migrated checkpoint: {MORE_STEPS} steps")
    resumed_state = train.train(loaded, train.V3, MORE_STEPS, _bar(progress, MORE_STEPS, steps))
    resumed = float(np.mean(resumed_state.energy_history[-_LAST:]))
    resumed_state.export(folder / "ckpt_resumed")
    log(
        f"  step {resumed_state.step}: energy {resumed:.4f}, relative error {abs(resumed - exact) / abs(exact):.2e}"
    )

    log(f"  in Python: train.train(state, train.V3, {MORE_STEPS})")
    report = folder / "report.html"
    replace_text(report, s.report(folder / "ckpt_resumed"))
    log(f"\n10. Look at the last checkpoint: {report}")
    log(by_hand("report", folder / "ckpt_resumed", "--out", report))
    seconds = time.perf_counter() - began
    log(f"\nDone in {seconds:.0f} s. Everything is under {folder}:")
    for name, content in {
        "schemas/vmc_state": "the schema: copy v3.yaml to v4.yaml, change it, then lint the folder",
        "ckpt_v1": "the checkpoint as trained, version 1",
        "ckpt_v3": "the same, migrated to version 3",
        "ckpt_resumed": "after more training, version 3",
        "vmc_ising": "the application",
        "report.html": "a page about the last checkpoint",
    }.items():
        log(f"  {folder / name}: {content}")
    log(f"\nOpen the page in a browser: {report.absolute().as_uri()}")
    return DemoReport(
        exact, trained, error, resumed, difference, str(bundle), str(migrated), str(report), seconds
    )


def by_hand(*words: object) -> str:
    """The line with the command that repeats a step, as the program was started."""
    started = Path(sys.argv[0])
    program = (
        [sys.executable, "-m", "neuralqx_struct"] if started.suffix == ".py" else [sys.argv[0]]
    )
    return f"  by hand: {' '.join(map(shell_word, [*program, *words]))}"


def in_python(folder: Path, line: str) -> str:
    """The lines that repeat a step in Python, from the imports on."""
    imports = f"import sys; sys.path.append({str(folder)!r}); import neuralqx_struct as s"
    return f"  in Python: {imports}\n             from vmc_ising import settings, train\n             {line}"


def _example() -> tuple[Any, ...]:
    """Imports the modules of the application, which are not part of the package."""
    folder = str(shipped("examples/vmc_ising").parent)
    if folder not in sys.path:
        sys.path.append(folder)
    names = ("ising", "train", "settings")
    return tuple(importlib.import_module(f"vmc_ising.{name}") for name in names)


def _validate(bundle: Path) -> None:
    """Validates against the published JSON Schema and by our own checks, which find more."""
    import neuralqx_struct as s

    found = s.validate(bundle, json_schema=shipped("schemas/manifest/1.json"))
    problems = [d for d in found if d.severity == "error"]
    if problems:
        raise StructError(problems)


def _bar(
    progress: Progress | None, total: int, already: int
) -> Callable[[int, float], None] | None:
    if progress is None:
        return None
    return lambda step, energy: progress(step - already, total, f"energy {energy:.4f}")
