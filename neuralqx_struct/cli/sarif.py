"""Reports in SARIF 2.1.0, the format of services that collect findings about code.

Each code is a rule with its page; places are lines of files, whose paths are relative to the working directory and
encoded as a URI demands it.

Example:
    >>> page_of("NQX101").name
    'unknown-type'
    >>> uri_of("my schemas/v1.yaml"), uri_of("s3://bucket/a#b")
    ('my%20schemas/v1.yaml', 's3://bucket/a%23b')
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from neuralqx_struct.cli.report import Report
from neuralqx_struct.errors import Diagnostic, printable, printable_lines
from neuralqx_struct.references import shipped

#: The address of the documentation.
SITE: Final = "https://neuralqx.github.io/neuralqx-struct"


class Page(NamedTuple):
    """The page about a code.

    Attributes:
        name: The name of the diagnostic.
        summary: The first sentence.
        url: The address on the site.
    """

    name: str
    summary: str
    url: str


def page_of(code: str) -> Page:
    """The page about a code that has one."""
    text = shipped(f"docs/diagnostics/{code}.md").read_text(encoding="utf-8")
    title, _, rest = text.partition("\n")
    first = rest.strip().partition("\n\n")[0]
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|\s+", lambda found: found[1] or " ", first)
    name = title.removeprefix("# ").partition(" ")[2]
    summary = re.split(r"(?<=\.) ", plain)[0]
    return Page(name, summary, f"{SITE}/codes/{code[:4]}xx.html#{code.lower()}")


_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def sarif(_command: str, report: Report) -> str:
    """A report as the text of a SARIF log with one run."""
    from neuralqx_struct import __version__

    codes = {code: n for n, code in enumerate(sorted({each.code for each in report.everything}))}
    driver = {
        "name": "neuralqx-struct",
        "version": __version__,
        "informationUri": SITE,
        "rules": [_rule(code) for code in codes],
    }
    code = report.exit_code
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": code < 2, "exitCode": code}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(found, codes[found.code]) for found in report.everything],
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(log)


def _rule(code: str) -> dict[str, Any]:
    page = page_of(code)
    return {
        "id": code,
        "name": page.name,
        "shortDescription": {"text": page.summary},
        "helpUri": page.url,
    }


def _result(found: Diagnostic, rule: int) -> dict[str, Any]:
    message = printable_lines("\n".join(filter(None, [found.message, found.remedy])))
    place = _location(found)
    return {
        "ruleId": found.code,
        "ruleIndex": rule,
        "level": _LEVELS[found.severity],
        "message": {"text": message},
        "locations": [place] if place else [],
    }


def _location(found: Diagnostic) -> dict[str, Any]:
    place: dict[str, Any] = {}
    if found.path:
        place["logicalLocations"] = [{"fullyQualifiedName": printable(found.path)}]
    if found.file is not None:
        file: dict[str, Any] = {"artifactLocation": {"uri": uri_of(found.file)}}
        if found.line is not None:
            file["region"] = {"startLine": found.line, "startColumn": found.column or 1}
        place["physicalLocation"] = file
    return place


def uri_of(file: str) -> str:
    """The path or URL of a file as a URI reference, relative to the working directory if it lies below it."""
    if "://" in file:
        return quote(file, safe=":/?=&%+,;@~!$'()*", errors="backslashreplace")
    path = Path(file)
    if path.is_absolute():
        here = Path(os.path.realpath(Path.cwd()))
        for folder in (Path.cwd(), here):
            if path.is_relative_to(folder):
                return _encoded(path.relative_to(folder))
        return f"file://{_encoded(path)}"
    return _encoded(path)


def _encoded(path: Path) -> str:
    """A path as a URI reference; a colon in it, which would end a scheme, is encoded."""
    return quote(path.as_posix(), safe="/~!$&'()*+,;=@", errors="backslashreplace")
