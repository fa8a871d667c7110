import sys
import types

import pytest

from neuralqx_struct.errors import SerializationError
from neuralqx_struct.references import (
    alias_class,
    class_ref,
    find_class,
    register_ref,
    resolve_class,
)
from tests.builders import refused


class Outer:
    class Inner:
        pass

    secret = property(lambda self: 1 / 0)


def test_refs_and_back():
    ref = class_ref(Outer.Inner)
    assert ref == f"{__name__}:Outer.Inner"
    assert resolve_class(ref) is Outer.Inner is find_class(ref)


def test_a_reader_never_imports(tmp_path, monkeypatch):
    (tmp_path / "planted_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_class("planted_module:X") is None
    assert find_class("planted_module:X", trust=["planted"]) is None
    assert "planted_module" not in sys.modules


def test_trust_imports_the_named_package_only(tmp_path, monkeypatch):
    (tmp_path / "trusted_pkg.py").write_text("class X: pass")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_class("trusted_pkg:X", trust=["trusted_pkg"]).__name__ == "X"
    assert find_class("trusted_missing:X", trust=["trusted_missing"]) is None


def test_lookup_runs_no_getattr(monkeypatch):
    module = types.ModuleType("lazy_module")
    module.__getattr__ = lambda name: pytest.fail("__getattr__ ran")
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    assert find_class("lazy_module:X") is None
    assert find_class(f"{__name__}:Outer.secret") is None
    assert find_class("no colon") is None and find_class("os:path.join") is None


def test_aliases_of_moved_classes():
    alias_class("old.place:Inner", Outer.Inner)
    assert find_class("old.place:Inner") is Outer.Inner
    with refused(SerializationError, "NQX501", "nonsense"):
        alias_class("nonsense", Outer)


def test_the_newest_definition_wins():
    first = type("Cell", (), {"__module__": "notebook"})
    second = type("Cell", (), {"__module__": "notebook"})
    register_ref(first)
    register_ref(second)
    assert find_class("notebook:Cell") is second


@pytest.mark.parametrize(
    ("ref", "named"),
    [
        ("no_such_module_here:X", "no_such_module_here"),
        ("collections:NoSuchClass", "NoSuchClass"),
        ("nonsense", "nonsense"),
        ("lab.x@3:State", "lab.x@3:State"),
    ],
)
def test_what_cannot_be_resolved(ref, named):
    with refused(SerializationError, "NQX501", named) as caught:
        resolve_class(ref)
    assert caught.value.diagnostics[0].hint


def test_resolve_imports_for_its_caller(tmp_path, monkeypatch):
    (tmp_path / "late_module.py").write_text("class Late: pass")
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_class("late_module:Late").__name__ == "Late"


def test_a_trusted_module_that_fails(tmp_path, monkeypatch):
    (tmp_path / "module_that_fails.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with refused(SerializationError, "NQX501", "ZeroDivisionError", "module_that_fails") as caught:
        find_class("module_that_fails:X", trust=["module_that_fails"])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_reference_of_what_is_no_class():
    with refused(TypeError, "class_ref()", "3"):
        class_ref(3)


@pytest.mark.parametrize(("text", "missing"), [("import no_such_module_at_all", True), ("", False)])
def test_an_import_error_inside_a_trusted_module_is_not_hidden(
    tmp_path, monkeypatch, text, missing
):
    name = f"lab_module_{missing}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_class("lab_absent:A", trust=["lab_absent"]) is None
    if missing:
        with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
            find_class(f"{name}:A", trust=[name])
    else:
        assert find_class(f"{name}:A", trust=[name]) is None
    sys.modules.pop(name, None)
