"""HTML: text of files has no meaning in it."""

from hypothesis import given
from hypothesis import strategies as st

from neuralqx_struct.markup import items, table, tag, text
from tests.builders import ReadPage


@given(st.text())
def test_no_text_becomes_markup_or_steers(value):
    found = ReadPage(tag("p", text(value), title=value))
    (name, attributes), *more = found.seen
    assert (name, more) == ("p", [])
    shown = "".join(found.texts)
    assert attributes.get("title", "") == shown
    assert not set(shown) & set("\x00\x1b\u202e\u2028")


def test_elements():
    assert tag("a", "x", class_="k", aria_label="l", href=None) == (
        '<a class="k" aria-label="l">x</a>'
    )
    assert items(["a", "b"]) == "<ul><li>a</li><li>b</li></ul>"
    found = ReadPage(table(["a"], [["1"], ["2"]], "of <b>"))
    assert [name for name, _ in found.seen].count("td") == 2
    assert "of <b>" in found.texts
