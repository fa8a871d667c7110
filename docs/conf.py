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
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes stand in the docstring of their class, and once in the index
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_title = f"neuralqx-struct {version}"

# The pages of diagnostics have examples of files that are no valid YAML.
suppress_warnings = ["misc.highlighting_failure"]


def list_diagnostics(_app: Any, docname: str, content: list[str]) -> None:
    """Put a list of links in the place of each line such as ``% pages: NQX3``."""
    if docname == "diagnostics":
        folder = ROOT / "docs" / "diagnostics"

        def links(found: re.Match[str]) -> str:
            return "\n".join(
                f"- [](diagnostics/{p.name})" for p in sorted(folder.glob(f"{found[1]}*.md"))
            )

        content[0] = re.sub(r"^% pages: (NQX\d)$", links, content[0], flags=re.MULTILINE)


def leave_out_of_navigation(app: Any, _doctree: Any) -> None:
    """Mark the pages of codes as such that no table of contents has: the navigation of each page would list all of them."""
    if app.env.docname.startswith("diagnostics/"):
        app.env.metadata[app.env.docname]["orphan"] = True


def setup(app: Any) -> None:
    """Connect the two functions."""
    app.connect("source-read", list_diagnostics)
    app.connect("doctree-read", leave_out_of_navigation)
