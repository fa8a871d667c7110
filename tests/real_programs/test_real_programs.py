"""Programs as users write them: each saves, goes on bit by bit, changes its schema once, and goes on from its old run.

The lines that a program has for this package end in ``# +``; so do those of its change. The table in ``docs/training.md``
has their numbers.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import chdir
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.real_programs.running import results

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
STEPS, HALF = 6, 3


class Program(NamedTuple):
    """A program, and how it is called.

    Attributes:
        title: Its name in the table.
        file: The module beside this one.
        arguments: Those of its ``main``.
        by_day: Whether it takes few seconds.
        alone: Whether it needs a process of its own, as NetKet, which changes the precision of JAX.
        needs: A package that the extra ``slow`` brings.
    """

    title: str
    file: str
    arguments: tuple[str, ...] = ()
    by_day: bool = False
    alone: bool = False
    needs: str = "neuralqx_struct"

    @property
    def parts(self):
        """The text of the program, and that of its change."""
        text = (HERE / f"{self.file}.py").read_text(encoding="utf-8")
        before, mark, after = text.partition("\nCHANGED = ")
        return before, mark + after


PROGRAMS = (
    Program("Linen `TrainState`, AdamW", "linen", ("adamw",), by_day=True),
    Program("Linen, `multi_transform`", "linen", ("multi_transform",)),
    Program("Linen, `MultiSteps`", "linen", ("MultiSteps",)),
    Program("Linen, `inject_hyperparams`", "linen", ("inject_hyperparams",)),
    Program("Linen, `schedule_free`", "linen", ("schedule_free",)),
    Program("NNX, `Optimizer` and metrics", "nnx_model"),
    Program("Equinox, `State` and `BatchNorm`", "equinox_norm"),
    Program("haliax", "haliax_named", needs="haliax"),
    Program("dataclasses of chex", "chex_dataclass", by_day=True),
    Program("PPO agent", "ppo"),
    Program("diffusion model with EMA", "diffusion", by_day=True),
    Program("MaxText's names of parameters", "maxtext_names"),
    Program("GPT-2 of transformers to JAX and back", "transformers_gpt2", needs="transformers"),
    Program("NetKet, Jastrow", "netket_states", ("Jastrow",), alone=True, needs="netket"),
    Program("NetKet, RBM", "netket_states", ("RBM",), alone=True, needs="netket"),
    Program("NetKet, autoregressive", "netket_states", ("autoregressive",), alone=True, needs="netket"),
    Program("NetKet, infidelity driver", "netket_states", ("infidelity",), alone=True, needs="netket"),
    Program("NumPyro, `SVI` with its own Adam", "numpyro_svi", needs="numpyro"),
    Program("BlackJAX, NUTS", "blackjax_nuts", needs="blackjax"),
    Program("pool of spawned workers", "worker_pool", alone=True),
    Program("notebook whose cells run twice", "notebook", needs="nbclient"),
)  # fmt: skip
CASES = [
    pytest.param(program, processes, id=f"{' '.join((program.file, *program.arguments))}, {'processes' if processes else 'objects'}",
                 marks=[] if program.by_day and not processes else [pytest.mark.slow])
    for program in PROGRAMS
    for processes in ((True,) if program.alone else (False, True))
]  # fmt: skip


def edited(program):
    """The text of a program after its change."""
    text, change = program.parts
    values = ast.parse(change).body
    (edits,) = (each.value for each in values if ast.unparse(each).startswith("EDITS = "))
    for old, new in ast.literal_eval(edits).items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def run(text, folder, until, arguments, alone):
    """The results of a program in a folder, in this process or in one of its own."""
    folder.mkdir(exist_ok=True)
    if not alone:
        with chdir(folder):
            return results(text, until, arguments)
    (folder / "program.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "tests.real_programs.running", str(until), *arguments]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(1200)  # six processes, of which each imports JAX
@pytest.mark.parametrize(("program", "in_processes"), CASES)
# haliax imports names that Equinox and JAX deprecate.
@pytest.mark.filterwarnings("ignore:.equinox.static_field. is deprecated:UserWarning")
@pytest.mark.filterwarnings("ignore:jax\\.\\S+ is deprecated:DeprecationWarning")
def test_a_program_goes_on_bit_by_bit_and_from_its_old_run_after_a_change(
    program, in_processes, tmp_path, monkeypatch
):
    if find_spec(program.needs) is None:  # importing NetKet here would change the precision of JAX
        pytest.skip(f"{program.needs} is not installed")
    monkeypatch.delitem(sys.modules, "program", raising=False)  # undone after the test
    text, change = program.parts
    whole = run(text, tmp_path / "whole", STEPS, program.arguments, in_processes)
    run(text, tmp_path / "run", HALF, program.arguments, in_processes)
    shutil.copytree(tmp_path / "run", tmp_path / "changed")
    changed = edited(program)
    if "\ndef change(" in change:  # it writes the next version of its schema files
        assert run(text + change, tmp_path / "changed", 0, (), in_processes) == []

    assert run(text, tmp_path / "run", STEPS, program.arguments, in_processes) == whole
    _, outputs = run(changed, tmp_path / "changed", STEPS, program.arguments, in_processes)
    assert outputs == whole[1]
    _, outputs = run(changed, tmp_path / "changed", STEPS + 2, program.arguments, in_processes)
    assert outputs != whole[1]  # it has gone on from what it saved itself


def lines_of(text):
    return len(re.findall(r"# \+(?:\"\"\",)?$", text, re.MULTILINE))


def test_the_documentation_has_the_lines_of_each_program():
    rows = ["| program | lines | what changes once | lines |", "|---|---|---|---|"]
    for program in PROGRAMS:
        text, change = program.parts
        (what,) = re.findall(r'^\nCHANGED = "(.*)"$', change, re.MULTILINE)
        rows.append(f"| {program.title} | {lines_of(text)} | {what} | {lines_of(change)} |")
    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in page
