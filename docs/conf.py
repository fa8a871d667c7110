"""Settings of Sphinx."""

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import neuralqx_struct  # noqa: E402 - found by the line above

project = "neuralqx-struct"
author = "the authors of neuralqx-struct"
release = version = neuralqx_struct.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = [
    "_build",
    "diagnostics/*",
]  # the texts of codes are on the pages of their families
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes stand in the docstring of their class, and once in the index
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs/_static/scorer.js")
html_show_copyright = False
html_title = f"neuralqx-struct {version}"

# The pages of diagnostics have examples of files that are no valid YAML.
suppress_warnings = ["misc.highlighting_failure"]


def join_codes(app: Any, docname: str, content: list[str]) -> None:
    """Put the texts of all codes of a family in the place of a line such as ``% codes: NQX3``; lead links to a code there."""

    def texts(found: re.Match[str]) -> str:
        pages = sorted((ROOT / "docs" / "diagnostics").glob(f"{found[1]}*.md"))
        for page in pages:
            app.env.note_dependency(str(page))
        contents = ", ".join(f"[{page.stem}](#{page.stem.lower()})" for page in pages)
        each = (f"({p.stem.lower()})=\n{lowered(p.read_text(encoding='utf-8'))}" for p in pages)
        return "\n\n".join([f"{contents}.", *each])

    def lowered(text: str) -> str:
        """A text whose headings are one level lower; those inside of examples are none."""
        parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
        parts[::2] = [re.sub(r"^#", "##", part, flags=re.MULTILINE) for part in parts[::2]]
        return "".join(parts)

    content[0] = re.sub(r"^% codes: (NQX\d)$", texts, content[0], flags=re.MULTILINE)
    if docname.count("/") == 0:
        content[0] = re.sub(
            r"\]\(diagnostics/(NQX\d)(\d\d)\.md\)",
            lambda found: f"](codes/{found[1]}xx.md#{(found[1] + found[2]).lower()})",
            content[0],
        )


def setup(app: Any) -> None:
    """Connect the function."""
    app.connect("source-read", join_codes)
