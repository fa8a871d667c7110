"""The layout of the tests and of the package: where files lie, and the layers of the import contract."""

import ast
import functools
import importlib
import re
import tomllib

from tests.builders import REGISTRIES, ROOT, every

PACKAGE = ROOT / "neuralqx_struct"
TESTS = ROOT / "tests"
#: Folders of tests that cover the package as a whole, and folders without tests.
WHOLE = {"real_programs", "seeds", "peers", "laws", "hostile", "examples", "typing", "reader_js"}
DATA = {"histories", "suite", "golden", "programs"}
#: Modules of the root that are tested with another one.
TOGETHER = {"hooks": "fieldspec", "states": "trees"}


def packages():
    return {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def packages_with_tests():
    return {path.parent.name for path in TESTS.glob("*/test_*.py")}


def root_modules():
    return {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}


@every("path", sorted(TESTS.rglob("*.py")))
def test_no_file_imports_a_test_file(path):
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in names if "test_" in name and name.startswith("tests")]
    assert not [node for node in imports if node.level], "relative imports do not work in tests"


def test_every_package_has_a_folder_of_tests():
    assert packages() - packages_with_tests() == set()


def test_folders_of_tests_mirror_the_packages():
    folders = {path.parent.name for path in TESTS.glob("*/*.py")}
    assert folders - packages() - WHOLE - DATA == set()


def test_every_module_of_the_root_has_its_test():
    tested = {path.stem.removeprefix("test_") for path in TESTS.rglob("test_*.py")}
    assert {TOGETHER.get(name, name) for name in root_modules()} - tested == set()


def layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    lines = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    return [[name.strip() for name in line.split("|")] for line in lines]


def test_the_layers_name_the_whole_package():
    """A package that JAX divides (`codecs`) has its modules in the list, all of them."""
    named = [name for line in layers() for name in line]
    assert len(named) == len(set(named))
    divided = {name.partition(".")[0] for name in named if "." in name}
    whole = {name for name in named if "." not in name}
    assert whole | divided == packages() | root_modules()
    for package in divided - whole:
        modules = {path.stem for path in (PACKAGE / package).glob("*.py")} - {"__init__"}
        assert {name for name in named if name.startswith(f"{package}.")} == {
            f"{package}.{module}" for module in modules
        }


@functools.cache
def private_names():
    """The packages of others whose private names the package imports, with these names."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module == "__future__":
                continue
            top, *inner = node.module.split(".")
            names = [alias.name for alias in node.names if alias.name.startswith("_")]
            if top != "neuralqx_struct" and (names or any(part[0] == "_" for part in inner)):
                found.setdefault(top, set()).update(alias.name for alias in node.names)
    return found


def test_upper_bounds_are_of_packages_whose_private_names_are_used():
    """The tests of weak types, of registered classes and of constructors find a name that is gone."""
    assert private_names() == {
        "jax": {"trace_state_clean", "_registry", "_convert_element_type"},
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_users = {name: extras[name] for name in extras.keys() - {"unit", "test", "slow", "bench"}}
    needed = [each for group in (project["dependencies"], *of_users.values()) for each in group]
    bounded = {
        re.match(r"[\w-]+", each)[0]
        for each in needed
        if "<" in each or "==" in each.partition(";")[0]
    }
    assert bounded == {*private_names(), "jaxlib"}  # of one version with jax


def test_one_function_parses_text_as_python():
    """The parser of Python 3.11 fails where two threads use it; ``parse_tree`` waits and tries again."""
    parsers = {"ast.parse(": {"expressions/operators.py"}, "literal_eval(": {"types/literals.py"}}
    for call, places in parsers.items():
        found = {
            p
            for p in PACKAGE.rglob("*.py")
            if re.search(rf"^[^#>`]*{re.escape(call)}", p.read_text(), re.MULTILINE)
        }
        assert {path.relative_to(PACKAGE).as_posix() for path in found} == places


@every(("module", "name"), REGISTRIES)
def test_the_registries_that_are_reset_exist(module, name):
    assert isinstance(getattr(importlib.import_module(f"neuralqx_struct.{module}"), name), dict)
