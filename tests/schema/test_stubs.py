"""neuralqx_struct.schema.stubs: modules that are Python and give the classes of the schema; what checkers say is in test_typing.py."""

import ast
import importlib.util
import keyword
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.classes.schemas import load_schema
from neuralqx_struct.schema.reading import document_from_data
from neuralqx_struct.schema.series import load_series
from neuralqx_struct.schema.stubs import stub_module
from neuralqx_struct.schema.uses import among, link
from tests.builders import every


def document(fields, **members):
    data = {
        "language": "1",
        "schema": "lab.a",
        "version": 1,
        "root": "A",
        "structs": {"A": {"fields": fields}},
    }
    return document_from_data({**data, **members}, "<test>")


def imported(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def classes_of(text):
    checked = next(node for node in ast.parse(text).body if isinstance(node, ast.If))
    return {node.name: node for node in ast.walk(checked) if isinstance(node, ast.ClassDef)}


def arguments_of(cls):
    constructor = next(node for node in cls.body if isinstance(node, ast.FunctionDef))
    defaults = [None if d is None else ast.unparse(d) for d in constructor.args.kw_defaults]
    hints = [ast.unparse(a.annotation) for a in constructor.args.kwonlyargs]
    return dict(
        zip(
            [a.arg for a in constructor.args.kwonlyargs],
            zip(hints, defaults, strict=True),
            strict=True,
        )
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_module_gives_the_classes_of_its_version(vmc_folder, tmp_path, version):
    path = tmp_path / f"vmc{version}.py"
    path.write_text(stub_module(load_series(vmc_folder).at(version), str(vmc_folder)))
    module = imported(path)
    schema = load_schema(vmc_folder).at(version)
    assert module.VMCState is schema.root
    assert sorted(module.__all__) == sorted(schema)
    assert "jax" not in vars(module)


@every(
    ("said", "hint", "default"),
    [
        ("int", "int", None),
        ({"type": "float", "default": 1}, "float", "1.0"),
        ({"type": "float", "default": float("inf")}, "float", "DEFAULT"),
        ({"type": "int", "default": True}, "int", "DEFAULT"),
        ({"type": "complex", "default": 1.5}, "complex", "DEFAULT"),
        ({"type": "str", "default": "a'\"b"}, "str", "'a\\'\"b'"),
        ({"type": "str", "default": "x" * 100}, "str", "DEFAULT"),
        ({"type": "path", "default": "a"}, "pathlib.Path", "DEFAULT"),
        ("dtype", "np.dtype[typing.Any]", None),
        ("float32[n]", "ArrayLike", None),
        ({"type": "float32[2]", "default": "zeros"}, "ArrayLike", "DEFAULT"),
        ({"type": "float32[n] | null", "default": None}, "ArrayLike | None", "None"),
        ("list[float32[n]]", "list[jax.Array]", None),
        ("dict[str, tuple[int, ...]]", "dict[str, tuple[int, ...]]", None),
        ("tuple[]", "tuple[()]", None),
        ("literal['a', 2, True]", "typing.Literal['a', 2, True]", None),
        ("literal[1.5, 2]", "typing.Literal[2] | float", None),
        ("literal[1.5]", "float", None),
        ({"type": "E", "default": "x"}, "typing.Literal['x', 'y']", "'x'"),
        ("E | null", "typing.Literal['x', 'y'] | None", None),
        ("A | null", "A | None", None),
        ("prng_key[rbg]", "jax.Array", None),
        ("pytree", "object", None),
        ("pytree | null", "object | None", None),
        ("list[pytree]", "list[typing.Any]", None),
        ({"type": "int", "converter": "rounded"}, "object", None),
        ({"kind": "opaque", "default": None}, "object", "None"),
    ],
)
def test_types_and_defaults(said, hint, default):
    text = stub_module(document({"x": said}, enums={"E": ["x", "y"]}), "a")
    assert arguments_of(classes_of(text)["A"]) == {"x": (hint, default)}


def test_derived_fields_are_attributes_and_no_arguments():
    cls = classes_of(stub_module(document({"a": "int", "b": {"derived": "a + 1"}}), "a"))["A"]
    assert arguments_of(cls).keys() == {"a"}
    assert [n.target.id for n in cls.body if isinstance(n, ast.AnnAssign)] == ["a", "b"]


def test_structs_of_other_schemas_are_declared_too(tmp_path):
    for name, text in {
        "optim": "schema: lab.optim\nroot: Adam\nstructs: {Adam: {fields: {mu: int}}, A: {fields: {}}}\n",
        "a": "schema: lab.a\nroot: A\nuses: [lab.optim@1]\nstructs: {A: {fields: {o: lab.optim.Adam, p: lab.optim.A}}}\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "v1.yaml").write_text(f'language: "1"\nversion: 1\n{text}')
    text = stub_module(load_series(tmp_path / "a").head, "a")
    assert arguments_of(classes_of(text)["A"]) == {"o": ("Adam", None), "p": ("lab_optim_A", None)}
    (tmp_path / "classes.py").write_text(text)
    module = imported(tmp_path / "classes.py")
    value = module.A(o=module.Adam(mu=1), p=module.lab_optim_A())
    assert value.o.mu == 1
    linked = link(
        load_series(tmp_path / "a/v1.yaml").head, among([load_series(tmp_path / "optim").head])
    )
    assert stub_module(linked, "a") == text


names = st.sampled_from(
    [
        "s",
        "np",
        "jax",
        "typing",
        "pathlib",
        "SCHEMA",
        "DEFAULT",
        "ArrayLike",
        "self",
        "_self",
        "list",
    ]
) | (
    st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,4}", fullmatch=True).filter(
        lambda w: not keyword.iskeyword(w)
    )
)
docs = st.text(st.sampled_from("ab\"'\\\n\r\t\0\u2028{}#"), max_size=12)


@given(st.dictionaries(names, docs, min_size=1, max_size=6), docs)
def test_no_name_and_no_text_breaks_the_module(fields, doc):
    said = {
        name: {"type": "float32[n] | A | null", "default": None, "doc": text}
        for name, text in fields.items()
    }
    structs = {"A": {"fields": said, "doc": doc}}
    text = stub_module(document({}, structs=structs), "a")
    assert arguments_of(classes_of(text)["A"]).keys() == fields.keys()
    compile(text, "stub.py", "exec")


def test_writing_one_needs_no_jax(root):
    import subprocess

    code = (
        "import sys; from neuralqx_struct.schema.series import load_series; from neuralqx_struct.schema import stubs;"
        "head = load_series('schemas/vmc_state').head; stubs.stub_module(head, 'x');"
        "assert not {'jax', 'numpy', 'rich'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
