"""Files that are installed with the package: schemas, examples, and the documentation of diagnostics.

In an installed wheel they are under ``neuralqx_struct/shipped``, in a checkout at the top of the repository.

Example:
    >>> shipped("schemas/manifest/1.json").name
    '1.json'
"""

from __future__ import annotations

import re
from pathlib import Path

from neuralqx_struct.cli.reports import Report, failure
from neuralqx_struct.errors import did_you_mean

_PACKAGE = Path(__file__).resolve().parent.parent


def shipped(name: str) -> Path:
    """The path of an installed file or folder.

    Args:
        name: Path as in the repository, such as ``schemas/vmc_state``.

    Raises:
        FileNotFoundError: It is in neither place: the installation is incomplete.
    """
    for top in (_PACKAGE / "shipped", _PACKAGE.parent):
        if (top / name).exists():
            return top / name
    raise FileNotFoundError(
        f"{name}: expected it beside the package {_PACKAGE}, got nothing; install the package anew"
    )


def explain(code: str) -> Report:
    """The section about a diagnostic code."""
    wanted = f"NQX{code}" if re.fullmatch(r"\d{3}", code) else code.upper()
    page = shipped("docs/diagnostics.md")
    known: list[str] = []
    for section in re.split(r"(?m)^(?=## )", page.read_text(encoding="utf-8")):
        codes = re.findall(r"\bNQX\d{3}\b", section.partition("\n")[0])
        known += codes
        if wanted in codes:
            text = section.strip()
            return Report(text, members={"code": wanted, "text": text})
    message = f"expected a documented code, got {code!r}"
    # A code differs from its neighbours in one digit: they are likely corrections only within the same hundred.
    near = [found for found in known if found[:4] == wanted[:4]]
    hint = did_you_mean(wanted, near)
    if hint is None:
        hint = f"codes are NQX and three digits, such as NQX411; all are in {page}"
    return failure("NQX400", message, hint)
