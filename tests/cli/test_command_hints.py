"""Commands that hints name: each of them, run as it is written, does what its hint promises."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import neuralqx_struct as s
from tests.builders import POINT_V1, POINT_V2, invoke, report

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


@pytest.mark.parametrize("name", CASES)
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
