"""Commands that hints name: each of them, run as it is written, does what its hint promises."""

import dataclasses
import re
import shlex
import shutil
from pathlib import Path

import numpy as np

import neuralqx_struct as s
from neuralqx_struct.cli import demo
from neuralqx_struct.cli.commands import COMMANDS
from tests.builders import POINT_V1, POINT_V2, every, invoke, report

PACKAGE = Path(s.__file__).parent
DOUBLE = POINT_V1.replace("float32", "float64")
EXPLAINED = POINT_V1.replace("root: Point", "doc: A point.\nroot: Point")
LONG = POINT_V1.replace("{x:", "{x:  ").replace("step: int", "step:   {type: int}")


def folder(name, *texts):
    """A schema folder with a version of each text, in the working directory."""
    place = Path(name)
    place.mkdir(exist_ok=True)
    for number, text in enumerate(texts, 1):
        (place / f"v{number}.yaml").write_text(text)
    return place


def frozen(*then):
    """A folder with other versions than the first one, which was frozen and is also published elsewhere."""
    folder("published", POINT_V1)
    assert invoke("schema", "freeze", folder("a b", POINT_V1)).exit_code == 0
    return folder("a b", *then)


def bundle():
    schema = s.load_schema(folder("points", POINT_V1))
    return s.export(schema.Point(x=np.zeros(9, "f4"), step=1), "a bundle")


def breaking_after(text):
    folder("published", POINT_V1)
    return "breaking", folder("now", text), "--against", "published"


#: The command that fails or warns, the code of its finding, and whether it is gone after the command of the hint.
CASES = {
    "another layout": (lambda: ("schema", "fmt", "--check", folder("a b", LONG)), "NQX016", True),
    "no golden payload": (lambda: ("schema", "lint", "--golden", folder("a b", POINT_V1)), "NQX314", True),
    "not frozen": (lambda: ("schema", "lint", frozen(POINT_V1, POINT_V2)), "NQX295", True),
    "corrected": (lambda: ("schema", "lint", frozen(EXPLAINED)), "NQX294", True),
    "edited": (lambda: ("schema", "lint", frozen(DOUBLE)), "NQX291", True),
    "edited since": (lambda: breaking_after(DOUBLE), "NQX290", True),
    "a bundle": (lambda: ("schema", "lint", bundle()), "NQX010", False),
    "an unknown code": (lambda: ("explain", "NQX999"), "NQX400", False),
}  # fmt: skip


@every("name", CASES)
def test_a_command_that_a_hint_names_works(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, code, resolves = CASES[name]
    words = [str(word) for word in words()]
    _, found = report(*words)
    hints = [d["hint"] for d in found["diagnostics"] if d["code"] == code]
    (command,) = re.findall(r"(?:^|`)neuralqx-struct ([^`]+?)(?:`|$)", hints[0])
    done = invoke(*shlex.split(command.replace("PUBLISHED", "published")))
    assert done.exit_code == 0, done.output
    _, after = report(*words)
    assert (code in {d["code"] for d in after["diagnostics"]}) is not resolves


# --- hints that name an option, a path, a call or a line of a file ---


def copied(name, edit=None):
    """A copy of a bundle, with a change to one of its files."""
    shutil.copytree("a bundle" if Path("a bundle").exists() else bundle(), name)
    if edit is not None:
        file, old, new = edit
        place = Path(name, file)
        place.write_bytes(place.read_bytes().replace(old, new, 1))
    return name


def damaged():
    np.savez("safe.npz", x=np.zeros(3, "f4"))
    return copied(
        "damaged", ("arrays.npz", np.zeros(9, "f4").tobytes(), np.ones(9, "f4").tobytes())
    )


def run_of_steps():
    series = s.Series("run")
    for step in (1, 2):
        series.save(step, {"w": np.zeros(3) + step})
    return "run"


def orbax():
    return s.export({"w": np.zeros(3)}, "orbax bundle", store="orbax")


def foreign():
    np.savez("f.npz", w=np.zeros((3, 4), "f4"))
    return "f.npz"


def newest():
    folder("points", POINT_V1, POINT_V2)
    made = s.load_schema("points")
    return s.export(made.Point(x=np.zeros(9, "f4"), count=1), "newest")


def in_use():
    Path("in use").mkdir()
    Path("in use", "notes").write_text("mine")
    return "in use"


def with_project_file():
    Path("neuralqx-struct.toml").write_text("schemas = '.'\n")


POINTS = ("--schema", "points")
EXISTS = ("NQX431", "pass --overwrite, or choose another --out")

#: What fails, its code and its hint; what is done first to follow it, and the command that follows it.
FOLLOWED = {
    "convert: overwrite": (
        lambda: ("convert", bundle(), "--out", copied("there")), *EXISTS,
        None, ("convert", "a bundle", "--out", "there", "--overwrite"),
    ),
    "convert: another path": (
        lambda: ("convert", bundle(), "--out", copied("there")), *EXISTS,
        None, ("convert", "a bundle", "--out", "elsewhere"),
    ),
    "convert: over something else": (
        lambda: ("convert", bundle(), "--out", in_use(), "--overwrite"),
        "NQX431", "choose another path, or remove it yourself",
        lambda: shutil.rmtree("in use"), ("convert", "a bundle", "--out", "in use"),
    ),
    "convert: into its source": (
        lambda: ("convert", bundle(), "--out", "a bundle/sub"),
        "NQX431", "choose another path",
        None, ("convert", "a bundle", "--out", "sub"),
    ),
    "convert: a foreign file": (
        lambda: ("convert", foreign(), "--out", "made"),
        "NQX708", "`neuralqx-struct infer FILE` drafts both; pass --schema SCHEMA and --layout LAYOUT",
        lambda: invoke("infer", "f.npz", "--out", "schemas/drafted"),
        ("convert", "f.npz", "--out", "made", "--schema", "schemas/drafted", "--layout", "LAYOUT"),
    ),
    "convert: a foreign file into another": (
        lambda: ("convert", foreign(), "--out", "made.safetensors", "--schema", drafted(), "--layout", layout()),
        "NQX614", "a foreign file becomes a bundle first; the bundle then becomes another file",
        lambda: invoke("convert", "f.npz", "--out", "first", "--schema", "schemas/drafted", "--layout", layout()),
        ("convert", "first", "--out", "made.safetensors", "--schema", "schemas/drafted", "--layout", "LAYOUT"),
    ),
    "convert: a zip of a store of folders": (
        lambda: ("convert", orbax(), "--out", "o.zip"),
        "NQX614", "name a folder on a disk, or use --store npz",
        None, ("convert", "orbax bundle", "--out", "o.zip", "--store", "npz"),
    ),
    "convert: a series": (
        lambda: ("convert", run_of_steps(), "--out", "o"),
        "NQX401", "name one, such as run/2",
        None, ("convert", "run/2", "--out", "o"),
    ),
    "verify: a series": (
        lambda: ("verify", run_of_steps()), "NQX401", "name one, such as run/2",
        None, ("verify", "run/2"),
    ),
    "verify: an edited manifest": (
        lambda: ("verify", copied("edited", ("manifest.json", b'"step": 1', b'"step": 2'))),
        "NQX407", "if that was you, call neuralqx_struct.bundle.seal(path)",
        lambda: s.bundle.seal("edited"), ("verify", "edited"),
    ),
    "verify: damage": (
        lambda: ("verify", damaged()), "NQX407", "restore it from a copy",
        lambda: shutil.copy("a bundle/arrays.npz", "damaged/arrays.npz"), ("verify", "damaged"),
    ),
    "verify: a missing file": (
        lambda: ("verify", without_arrays()), "NQX409", "restore the file from a copy",
        lambda: shutil.copy("a bundle/arrays.npz", "bare/arrays.npz"), ("verify", "bare"),
    ),
    "migrate: no schema": (
        lambda: ("migrate", newest(), "--out", "o"),
        "NQX400", "pass the folder of the schema: --schema SCHEMA",
        None, ("migrate", "newest", "--out", "o", *POINTS),
    ),
    "migrate: no schema, but a project file": (
        lambda: ("migrate", newest(), "--out", "o"),
        "NQX400", "or name it in a project file",
        with_project_file, ("migrate", "newest", "--out", "o"),
    ),
    "migrate: an existing path": (
        lambda: ("migrate", newest(), "--to", "1", "--out", in_use(), *POINTS),
        "NQX431", "pass --overwrite, or choose another --out",
        None, ("migrate", "newest", "--to", "1", "--out", "o", *POINTS),
    ),
    "migrate: into its source": (
        lambda: ("migrate", newest(), "--to", "1", "--out", "newest/o", *POINTS),
        "NQX431", "choose another path",
        None, ("migrate", "newest", "--to", "1", "--out", "o", *POINTS),
    ),
    "migrate: too far back": (
        lambda: ("migrate", newest(), "--to", "-2", "--out", "o", *POINTS),
        "NQX422", "known versions of lab.point: 1, 2",
        None, ("migrate", "newest", "--to", "1", "--out", "o", *POINTS),
    ),
    "migrate: a schema of the project": (
        lambda: ("migrate", newest(), "--to", "1", "--out", "o", "--schema", "lab.point"),
        "NQX400", "in neuralqx-struct.toml: schemas = 'FOLDER'",
        with_project_file, ("migrate", "newest", "--to", "1", "--out", "o", "--schema", "lab.point"),
    ),
    "demo: a folder in use": (
        lambda: ("demo", in_use()), "NQX400", "name another: neuralqx-struct demo FOLDER",
        None, ("demo", "another"),
    ),
}  # fmt: skip


def without_arrays():
    Path(copied("bare"), "arrays.npz").unlink()
    return "bare"


def no_training(where, **_):
    """The demonstration in a new folder, without its minutes; test_demo.py runs it."""
    assert not where.exists()
    return demo.DemoReport(*range(len(dataclasses.fields(demo.DemoReport))))


def drafted():
    assert invoke("infer", "f.npz", "--out", "schemas/drafted").exit_code == 0
    return "schemas/drafted"


def layout():
    return next(Path("schemas/drafted").rglob("layouts/*.yaml")).stem


@every("name", FOLLOWED)
def test_a_hint_that_is_followed_works(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, code, hint, first, then = FOLLOWED[name]
    done, found = report(*map(str, words()))
    assert done.exit_code
    assert [d["code"] for d in found["diagnostics"]] == [code]
    assert hint in found["diagnostics"][0]["hint"]
    if first is not None:
        first()
    monkeypatch.setattr(demo, "run", no_training)
    done = invoke(*(layout() if word == "LAYOUT" else word for word in then))
    assert done.exit_code == 0, done.output


def test_every_argument_that_a_hint_proposes_is_an_option():
    known = {each.name for command in COMMANDS.values() for each in command.arguments if each.flag}
    sources = (file.read_text() for file in PACKAGE.rglob("*.py"))
    proposed = {name for text in sources for name in re.findall(r'\bKeyword\(\s*"(\w+)"', text)}
    assert proposed and proposed <= known


def test_libraries_leave_the_names_of_options_to_the_command_line():
    """A caller in Python has arguments, so a hint names none of the options itself; whole commands are fine."""
    flags = {
        flag for command in COMMANDS.values() for each in command.arguments for flag in each.flags
    }
    for file in PACKAGE.rglob("*.py"):
        if file.is_relative_to(PACKAGE / "cli"):
            continue
        for line in file.read_text().splitlines():
            if re.search(r"hint|pass ", line) and "neuralqx-struct " not in line:
                assert not flags & set(re.findall(r"--[a-z-]+", line)), f"{file}: {line}"
