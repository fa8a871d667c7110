"""Named leaves beside a declaration: the verdict about each name, the names like it, and the findings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.matching import (
    Form,
    Receipt,
    compared,
    match,
    unfit,
    unknown_field,
    without_value,
)

NAMES = st.lists(st.sampled_from("abcdef"), unique=True)
FORMS = st.builds(Form, st.sampled_from(["int8", "float32"]), st.sampled_from([(), (2,), (2, 3)]))


@given(NAMES, NAMES)
def test_each_name_has_one_verdict_and_a_place(have, want):
    found = match(have, want)
    assert [*found] == [*want, *(name for name in have if name not in want)]
    assert found.having("fits") == [name for name in want if name in have]
    assert found.having("missing") == [name for name in want if name not in have]
    assert found.having("fits", "missing") == want


@given(FORMS, FORMS)
def test_a_dtype_is_compared_before_a_shape(have, want):
    shapes = "fits" if have.shape == want.shape else "misshapen"
    assert compared(have, want) == (shapes if have.dtype == want.dtype else "mistyped")


@given(FORMS)
def test_another_value_is_of_another_type_than_an_array(form):
    assert compared(None, form) == compared(form, None) == "mistyped"
    assert compared(None, None) == compared(form, form) == "fits"


def test_dtypes_may_be_compared_by_a_part_of_them():
    have, want = Form("float32", (2,)), Form("float64", (2,))
    assert compared(have, want) == "mistyped"
    assert compared(have, want, lambda form: form.dtype[:5]) == "fits"


class Odd:
    """An object whose attributes raise anything."""

    def __getattr__(self, name):
        raise RuntimeError(name)


def test_only_arrays_have_a_form():
    assert Form.of(np.zeros((2, 3), "int8")) == Form("int8", (2, 3))
    assert [Form.of(each) for each in (1.5, None, "a", Odd())] == [None] * 4


def test_a_name_is_like_one_of_the_other_side():
    names = match(["w", "kernal"], ["w", "kernel"])
    assert names.meant("kernel") == "did you mean 'kernal'?"
    assert names.meant("kernal") == "did you mean 'kernel'?"
    assert match(["kernel", "kernal"], ["kernel", "bias"]).meant("bias") is None
    assert Receipt(kernel="missing").meant("kernel") is None


@pytest.mark.parametrize(
    ("found", "code", "message"),
    [
        (unfit("missing", "$.w", "int8[2]"), "NQX414", "expected int8[2], got nothing"),
        (
            unfit("extra", "$.w", got="int8[2]", origin="like="),
            "NQX415",
            "expected nothing, as in like=, got int8[2]",
        ),
        (unfit("mistyped", "$.w", "int8[]", "'a'"), "NQX411", "expected int8[], got 'a'"),
        (unfit("misshapen", "$.w", "int8[]", "int8[1]"), "NQX412", "expected int8[], got int8[1]"),
        (unfit("misshapen", "$.w", code="NQX432"), "NQX432", "expected nothing, got nothing"),
    ],
)
def test_the_finding_has_the_code_of_its_verdict(found, code, message):
    assert (found.code, found.path, found.severity, found.message) == (
        code,
        "$.w",
        "error",
        message,
    )


def test_findings_about_fields():
    extra = unknown_field("$.v", "v", "Layer", "remove it", "info")
    assert (extra.code, extra.severity, extra.hint) == ("NQX415", "info", "remove it")
    assert "Layer" in extra.message and "'v'" in extra.message
    assert without_value("$.w", "add a default").code == "NQX414"
