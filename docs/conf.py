"""Settings of Sphinx."""

import sys
from pathlib import Path

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
html_title = f"neuralqx-struct {version}"

# The page of diagnostics has examples of files that are no valid YAML.
suppress_warnings = ["misc.highlighting_failure"]
