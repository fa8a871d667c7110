"""Help and exit codes of every command: usage, summaries, examples that run, and what each code means."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

import neuralqx_struct as s
from neuralqx_struct.cli import demo
from neuralqx_struct.cli.commands import COMMANDS, GROUPS
from neuralqx_struct.cli.help import usage, usage_lines
from neuralqx_struct.cli.parser import command_parser, program_parsers
from neuralqx_struct.cli.report import require_free
from neuralqx_struct.formats import write
from tests.builders import ROOT, every, invoke

GOLDEN = ROOT / "tests" / "golden" / "format-1" / "vmc_state_1"
MODEL = """import neuralqx_struct as s

class TrainState(s.Struct, schema="lab.train_state", version=1):
    step: int
    rate: float = 0.1
"""
POINT = """language: "1"
schema: lab.point
version: 1
root: Point
structs:
  Point:
    fields:
      x: "float32[n]"
      step: int
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of a user: bundles, schemas in git, a file of another program, a module."""
    top = tmp_path_factory.mktemp("made")
    shutil.copytree(GOLDEN, top / "ckpt")
    shutil.copytree(GOLDEN, top / "runs" / "a")
    shutil.copytree(GOLDEN, top / "runs" / "b")
    shutil.copytree(GOLDEN, top / "damaged")
    shutil.copytree(GOLDEN, top / "other")
    arrays = top / "damaged" / "arrays.npz"
    arrays.write_bytes(arrays.read_bytes()[:-9])
    shutil.copytree(ROOT / "schemas" / "vmc_state", top / "schemas" / "vmc_state")
    (top / "lab").mkdir()
    (top / "lab" / "model.py").write_text(MODEL)
    (top / "schemas" / "train_state").mkdir()
    text = POINT.replace("lab.point", "lab.train_state").replace("Point", "TrainState")
    text = text.replace('      x: "float32[n]"\n', "")
    (top / "schemas" / "train_state" / "v1.yaml").write_text(text)
    for name, text in {
        "point": POINT,
        "changed": POINT.replace("step: int", "step: str"),
        "wrong": POINT.replace("float32", "float33"),
        "broken": POINT.replace("fields", "feilds"),
    }.items():
        (top / name).mkdir()
        (top / name / "v1.yaml").write_text(text)
    (top / "report.html").write_text("an older one")
    (top / "vmc_state.py").write_text("an older one")
    write(top / "model.safetensors", "safetensors", {"w": np.zeros((3, 4), "f4")})
    state = {"w": np.ones(3)}
    total = s.replay(lambda state: state["w"].sum(), state)
    s.export(state, top / "kept", replay={"total": total})
    _, layout = s.infer(top / "model.safetensors").write(top / "schemas" / "net")
    layout.with_name("hf.yaml").write_text(
        layout.read_text().replace("layout: safe", "layout: hf # ")
    )
    layout.unlink()
    assert invoke("schema", "fmt", top / "schemas").exit_code == 0
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -q -m x"):
        subprocess.run(["git", *words.split()], cwd=top, check=True)
    return top


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr(demo, "run", no_training)
    yield tmp_path / "here"
    for name in ("lab.model", "lab"):
        sys.modules.pop(name, None)


RUN = demo.run


def no_training(where, **options):
    """The demonstration without its minutes; test_demo.py runs it. A folder in use is refused at once."""
    if where.exists():
        return RUN(where, **options)
    return demo.DemoReport(0.0, 0.0, 0.0, 0.0, 0.0, "a", "b", "c", 0.0)


# --- help ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("name", GROUPS)
def test_groups_show_whole_sentences_about_their_commands(name, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = invoke(*name.split(), "--help").stdout
    words = " ".join(shown.split())
    for command in COMMANDS.values():
        if command.name.rpartition(" ")[0] == name:
            assert f"{command.name.split()[-1]} {command.summary}" in words
    assert "Examples: neuralqx-struct" in words
    assert max(map(len, shown.splitlines())) <= width


@every("width", [80, 100])
@every("command", COMMANDS.values())
def test_help_of_a_command(command, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = invoke(*command.name.split(), "--help").stdout
    assert shown == command_parser(command).format_help()
    assert max(map(len, shown.splitlines())) <= width
    words = " ".join(shown.split())
    assert usage(command) in words
    assert f"```bash\n{usage(command)}\n```" in (ROOT / "docs" / "cli.md").read_text()
    for argument in command.all_arguments:
        assert f"{argument.metavar} {argument.help}" in words or argument.type is bool
        assert argument.metavar or f"{argument.flags[-1]} {argument.help}" in words
    examples = shown.partition("Examples:\n")[2].splitlines()
    assert examples == [f"  neuralqx-struct {call}" for call in command.examples] != []


@pytest.mark.parametrize("name", ["convert", "migrate", "schema export", "infer"])
def test_commands_that_write_take_their_source_target_and_overwrite_first(name):
    source, out, overwrite, *_ = COMMANDS[name].arguments
    assert not source.flag and source.metavar in ("SRC", "MODULE:CLASS")
    assert (out.flag, out.metavar, overwrite.flag) == ("--out", "DST", "--overwrite")


def test_an_option_is_the_same_in_all_commands():
    facts = {}
    for command in COMMANDS.values():
        for argument in command.all_arguments:
            if argument.flag:
                fact = (argument.metavar, argument.short, argument.parse, argument.many)
                facts.setdefault(argument.flag, set()).add(fact)
    different = {flag for flag, found in facts.items() if len(found) > 1}
    assert different == {"--layout"}  # of `schema new` the name of a file to write


# --- examples ------------------------------------------------------------------------------------------------------

EXAMPLES = [call for command in COMMANDS.values() for call in command.examples]


def edit(folder):
    """Edits a schema in place."""
    with (folder / "schemas" / "train_state" / "v1.yaml").open("a") as file:
        file.write("      rate: {type: float, default: 0.1}\n")


@pytest.mark.parametrize("call", EXAMPLES)
def test_an_example_runs(call, here):
    line, _, stdin = call.partition(" < ")
    if "revision" in call and "--from" not in call:
        edit(here)
    given = (here / stdin).read_bytes() if stdin else None
    done = invoke(*shlex.split(line), input=given)
    assert done.exit_code == 0, done.output


# --- exit codes ----------------------------------------------------------------------------------------------------

#: Of each command the calls that are clean, that give findings, and that could not run; None where there is none.
CODES = {
    "demo": ("new", None, "ckpt"),
    "validate": ("ckpt", "ckpt --schema schemas/train_state", "ckpt --schema nowhere"),
    "inspect": ("ckpt", "ckpt --filter tag:nothing", "ckpt --filter what:x"),
    "report": ("ckpt --out new.html", "broken --out new.html", "ckpt --out report.html"),
    "verify": ("ckpt", "damaged", "nowhere"),
    "replay": ("kept", "ckpt", "nowhere"),
    "diff": ("ckpt schemas/vmc_state", "broken schemas/vmc_state", "ckpt nowhere"),
    "diff --values": ("runs/a runs/b", "runs/a model.safetensors", "runs/a nowhere"),
    "breaking": ("schemas --against git:HEAD", "changed --against point", "nowhere --against ckpt"),
    "migrate": ("ckpt --schema schemas/vmc_state --out new", "ckpt --to 9 --out new", "ckpt --to 1 --out other"),
    "convert": ("ckpt --out new", "damaged --out new --store safetensors", "ckpt --out other"),
    "infer": ("ckpt", "damaged/arrays.npz", "ckpt --out report.html"),
    "explain": ("", None, "NQX999"),
    "schema lint": ("schemas/vmc_state", "wrong", "nowhere"),
    "schema fmt": ("schemas/vmc_state --check", "broken", "nowhere"),
    "schema list": ("schemas", "broken", "nowhere"),
    "schema show": ("schemas/vmc_state", "wrong", "nowhere"),
    "schema history": ("schemas/vmc_state", "broken", "nowhere"),
    "schema json-schema": ("manifest", "wrong", "nowhere"),
    "schema new": ("lab.new", None, "lab.train_state"),
    "schema freeze": ("schemas/vmc_state", "wrong", "nowhere"),
    "schema export": ("lab.model:TrainState", None, "lab.model:Other"),
    "schema stub": ("schemas/vmc_state", "wrong", "nowhere"),
    "schema revision": ("schemas/train_state --dry-run", "broken", "nowhere"),
}  # fmt: skip
CALLS = [
    (name, words, code)
    for name, calls in CODES.items()
    for code, words in enumerate(calls)
    if words is not None
]


@pytest.mark.parametrize(("name", "words", "code"), CALLS, ids=lambda value: str(value))
def test_exit_codes(name, words, code, here):
    if name == "schema revision":
        edit(here)
    done = invoke(*name.split(), *shlex.split(words), "--format", "json")
    assert done.exit_code == code, done.output
    data = json.loads(done.stdout)
    errors = [found for found in data["diagnostics"] if found["severity"] == "error"]
    assert data["ok"] is (code == 0) and bool(errors) is (code > 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_arguments_could_not_run(name, here):
    done = invoke(*name.split(), "--nonsense")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no such option: --nonsense" in done.stderr.lower()
    assert done.stderr.startswith(f"usage: {usage_lines(COMMANDS[name])}\n")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("convert ckpt --out o --store safetensor", "did you mean 'safetensors'?"),
        ("breaking --against ckpt --mode ful", "did you mean 'full'?"),
        ("migrate ckpt --to haed --dry-run", "did you mean 'head'?"),
        ("schema json-schema langage", "did you mean 'language'?"),
        ("breaking --against ckpt --category manifes", "did you mean 'manifest'?"),
    ],
)
def test_wrong_values_are_corrected(words, meant, here):
    done = invoke(*words.split())
    assert (done.exit_code, meant in done.stderr) == (2, True), done.output


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_without_a_command_prints_its_help(group):
    done = invoke(*group.split())
    assert done.exit_code == 2
    assert done.stderr == program_parsers()[group].format_help()


def test_every_command_has_its_calls():
    assert {name.partition(" --")[0] for name in CODES} == COMMANDS.keys()


# --- targets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "report ckpt --out report.html",
        "migrate ckpt --schema schemas/vmc_state --out other",
        "convert ckpt --out other",
        "infer model.safetensors --out schemas/net",
        "infer ckpt --out schemas/vmc_state/v1.yaml",
        "schema export lab.model:TrainState --out lab/model.py",
        "schema stub schemas/vmc_state --out vmc_state.py",
    ],
)
def test_a_target_that_exists_is_replaced_only_on_request(call, here):
    done = invoke(*shlex.split(call), "--format", "json")
    (found,) = json.loads(done.stdout)["diagnostics"]
    assert (done.exit_code, found["code"]) == (2, "NQX431")
    assert "--overwrite" in found["hint"]
    done = invoke(*shlex.split(call), "--overwrite")
    assert done.exit_code == 0, done.output


def test_devices_are_targets_although_they_exist():
    require_free(ROOT.__class__("/dev/null"), overwrite=False)


# --- corrections ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("valdate", "validate"),
        ("lint", "neuralqx-struct schema lint"),
        ("schema lnt", "lint"),
        ("schema migrate", "neuralqx-struct migrate"),
        ("validate ckpt --shema x", "--schema"),
        ("validate ckpt --format jsn", "json"),
        ("migrate ckpt --to haed --out new", "head"),
        ("migrate ckpt --to 9 --out new --schema schemas/vmc_state", "3"),
        ("validate ckpt --schema neuralqx.vmc_stat", "neuralqx.vmc_state"),
        ("schema show neuralqx.vmc_state@9", "neuralqx.vmc_state@3"),
        ("schema show schemas/vmc_stat", "schemas/vmc_state"),
        ("breaking schemas --against git:HEAD --mode ful", "full"),
        ("inspect ckpt --filter path:W_er", "W_re"),
        ("inspect ckpt --filter tga:trainable", "tag"),
        ("explain NQX401O", "NQX401"),
        ("schema export lab.model:TrainSate", "TrainState"),
        ("verify ckp", "ckpt"),
    ],
)
def test_words_that_are_nearly_right_are_corrected(words, meant, here):
    done = invoke(*shlex.split(words))
    assert done.exit_code in (1, 2)
    assert re.search(rf"did you mean '?{re.escape(meant)}'?\?", done.output), done.output
