"""What Python's own tools show of Struct classes: signatures, help, completion, wrapped functions, autodoc."""

import functools
import inspect
import pydoc
import subprocess
import sys
import typing

import jax
import pytest

import neuralqx_struct as s
from neuralqx_struct.fieldspec import RESERVED_NAMES


class Layer(s.Struct):
    """A dense layer.

    Attributes:
        w: Weights.
    """

    w: float
    n: int = s.field(static=True, default=2)
    area: int = s.field(static=True, derived=lambda self: self.n**2)
    k: str = s.field(kw_only=True, default="x")

    def forward(self, x):
        """Apply it."""
        return self.w * x


def test_signatures_and_hints():
    assert str(inspect.signature(Layer)) == "(w: float, n: int = 2, *, k: str = 'x') -> None"
    assert typing.get_type_hints(Layer) == {"w": float, "n": int, "area": int, "k": str}
    assert inspect.getdoc(Layer).startswith("A dense layer.")
    assert "class Layer" in inspect.getsource(Layer)


def test_wrapped_constructors_look_like_the_class():
    @functools.wraps(Layer)
    def make(*args, **kwargs):
        return Layer(*args, **kwargs)

    assert (
        make.__name__ == "Layer"
        and inspect.signature(make) == inspect.signature(Layer)
        and make(1.0).n == 2
    )


@pytest.mark.parametrize(
    "make", [lambda: Layer(1.0), lambda: jax.tree.map(lambda x: x, Layer(1.0))]
)
def test_completion_offers_fields_and_methods(make):
    offered = dir(make())
    assert {"w", "n", "area", "k", "forward", *RESERVED_NAMES} <= set(
        offered
    ) and offered == sorted(offered)


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        (
            Layer,
            (
                "Layer(w: float, n: int = 2, *, k: str = 'x') -> None",
                "A dense layer.",
                "forward(self, x)",
                "replace(self",
            ),
        ),
        (s.Struct, ("Base class of all Structs", "replace(self", "load(path: ", "tree_size(self)")),
        (s.field, ("field(*, static", "default_factory: Called without arguments")),
    ],
)
def test_help_says_how_to_use_it(what, lines):
    text = " ".join(pydoc.render_doc(what, renderer=pydoc.plaintext).split())
    text = text.replace("( ", "(")  # from 3.13 on, a long signature has a line for each parameter
    assert not [line for line in lines if line not in text]


def test_completion_of_the_package_imports_nothing():
    code = "import sys, neuralqx_struct as s; names = dir(s); assert 'Struct' in names and 'load_schema' in names; "
    code += "assert not {'jax', 'numpy', 'pydantic'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_completion_of_the_package_offers_what_is_public():
    offered = [name for name in dir(s) if not name.startswith("__")]
    assert {*offered} == {*s.__all__} - {"__version__"}
    with pytest.raises(AttributeError) as caught:
        s.loadschema
    assert (caught.value.name, caught.value.obj) == (
        "loadschema",
        s,
    )  # by which Python says: did you mean load_schema


def test_autodoc_documents_a_struct(tmp_path, root):
    source = "import neuralqx_struct as s\n" + inspect.getsource(Layer)
    (tmp_path / "layers.py").write_text(source)
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path[:0] = ['.', {str(root)!r}]\nextensions = ['sphinx.ext.autodoc']\n"
    )
    (tmp_path / "index.rst").write_text(
        "Layers\n======\n\n.. autoclass:: layers.Layer\n   :members:\n   :undoc-members:\n"
    )
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "text", ".", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out/index.txt").read_text()
    assert "class layers.Layer(w: float, n: int = 2, *, k: str = 'x')" in text
    assert "A dense layer." in text and "forward(x)" in text and "Apply it." in text
