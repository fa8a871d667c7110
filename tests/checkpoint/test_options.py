"""Records of options: the public functions, the types for checkers and the records have the same names and defaults."""

import inspect
from dataclasses import MISSING, fields

import pytest

import neuralqx_struct as s
from neuralqx_struct.checkpoint import ExportKeywords, LoadKeywords, ReadKeywords
from neuralqx_struct.checkpoint.options import ExportOptions, LoadOptions, ReadOptions


def keywords(function):
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


def members(record):
    return {
        each.name: each.default if each.default is not MISSING else each.default_factory()
        for each in fields(record)
    }


@pytest.mark.parametrize(("function", "record"), [(s.load, LoadOptions), (s.export, ExportOptions)])
def test_the_record_has_the_keywords_of_the_function(function, record):
    assert keywords(function) == members(record)


@pytest.mark.parametrize(
    ("typed", "record", "alone"),
    [
        (LoadKeywords, LoadOptions, {"load_cls"}),
        (ReadKeywords, ReadOptions, {"load_cls"}),
        (ExportKeywords, ExportOptions, {"asynchronous"}),
    ],
)
def test_checkers_know_the_same_names(typed, record, alone):
    assert set(typed.__annotations__) == set(members(record)) - alone


def test_help_names_each_option():
    for function in (s.load, s.export):
        section = inspect.getdoc(function).partition("Args:")[2].partition("Returns:")[0]
        assert all(f"\n    {name}: " in section for name in keywords(function))


def test_options_that_a_state_dict_has_not_are_refused():
    payload = s.to_state_dict({"w": 1.0})
    for name in ("mesh", "mmap", "nonsense"):
        with pytest.raises(TypeError, match=name):
            s.from_state_dict(payload, **{name: None})
