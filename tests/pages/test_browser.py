"""Reports in a real browser: nothing is cut, loaded or run that is not of the page, and the search field filters.

Needs Debian's `chromium`: `pytest -m browser`.
"""

import numpy as np
import pytest

import neuralqx_struct as s
from tests.browser import in_windows
from tests.builders import ROOT

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=document.title=1>\u202e"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    layers = {
        f"layer{i}": {"kernel": rng.normal(size=(32, 64)), "bias": np.zeros(64)} for i in range(40)
    }
    state = {"params": layers, HOSTILE: np.full(9, np.nan), "step": 3}
    ckpt = s.export(state, folder / "ckpt", metadata={HOSTILE: HOSTILE})
    other = s.export(
        {**state, "params": {**layers, "layer0": {"bias": np.ones(64)}}}, folder / "other"
    )
    flat = {f"a{i}": np.full(4, i, "float32") for i in range(10_000)}
    nested = {f"l{i}": {"kernel": np.ones(2), "bias": np.zeros(2)} for i in range(5000)}
    many, tree, other_tree = (
        s.export(each, folder / name)
        for name, each in (
            ("many", flat),
            ("tree", {"net": nested}),
            ("other tree", {"net": {name: {"kernel": np.ones(2) * 2} for name in nested}}),
        )
    )
    reports = {
        "checkpoint": s.report(ckpt),
        "schema": s.report(ROOT / "schemas" / "vmc_state"),
        "golden": s.report(ROOT / "tests" / "golden" / "format-1" / "vmc_state_1"),
        "two": s.report(ckpt, other),
        "many": s.report(many),
        "tree": s.report(tree),
        "two trees": s.report(tree, other_tree),
    }
    for name, page in reports.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder


@in_windows
@pytest.mark.parametrize("name", ["checkpoint", "schema", "golden", "two", "many"])
def test_nothing_is_cut_loaded_or_run(browser, pages, name, width, colours):
    browser.open((pages / f"{name}.html").as_uri(), width, colours)
    assert browser.troubles() == []
    assert browser.value("document.title") != "1"
    assert browser.value("document.documentElement.scrollWidth") <= width
    cut = """[...document.querySelectorAll('h1, h2, h3, p, li, .fact, .areas, .areas *, svg, nav, input, pre')]
        .filter((each) => !each.closest('.wide'))  // which scrolls
        .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).length"""
    assert browser.value(cut) == 0
    pressed = """[...document.querySelectorAll('.areas bdi')].filter((each) => each.offsetWidth)
        .filter((each) => each.parentElement.clientWidth < 30).length"""
    assert browser.value(pressed) == 0
    back = browser.value("getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[colours]


def test_the_search_field_filters_ten_thousand_rows(browser, pages):
    browser.open((pages / "many.html").as_uri(), 1300, "light")
    shown = """(() => {
        const field = document.querySelector('input[type=search]');
        field.value = 'A99'; field.dispatchEvent(new Event('input'));
        return [...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden).length;
    })()"""
    assert browser.value(shown) == 112  # a99, a990 to a999, a9900 to a9999, and the dict


ROWS = """(() => [...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden).map(
    (row) => row.cells[0].textContent))()"""
TYPED = """(() => { const field = document.querySelector('input[type=search]');
    field.value = %r; field.dispatchEvent(new Event('input')); })()"""
NAME = 'document.querySelector(`[title="%s"]`)'
CLICKED = f"{NAME}.click()"
PRESSED = f"{NAME}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter', bubbles: true}}))"


def test_a_tree_of_ten_thousand_arrays_opens_and_closes(browser, pages):
    browser.open((pages / "tree.html").as_uri(), 1300, "light")
    assert browser.value(ROWS) == ["$", "['net']"]
    cells = "[...document.querySelectorAll('tbody tr')][1].innerText"
    assert "156.2 KiB" in browser.value(cells) and "zeros 50.000%" in browser.value(cells)
    browser.value(CLICKED % "$['net']")
    assert len(browser.value(ROWS)) == 5002
    browser.value(PRESSED % "$['net']['l7']")
    assert browser.value(ROWS)[8:12] == ["['l6']", "['l7']", "['kernel']", "['bias']"]
    browser.value(TYPED % "L4321 bias")
    assert browser.value(ROWS) == ["$", "['net']", "['l4321']", "['bias']"]
    browser.value(TYPED % "")
    assert len(browser.value(ROWS)) == 5004
    browser.value(CLICKED % "$")
    assert browser.value(ROWS) == ["$"]
    assert browser.troubles() == []


def test_pages_about_ten_thousand_arrays_are_bounded(browser, pages):
    for name in ("many", "tree", "two trees"):
        browser.open((pages / f"{name}.html").as_uri(), 1300, "light")
        assert browser.value("document.querySelectorAll('*').length") < 220_000
        assert (pages / f"{name}.html").stat().st_size < 8_000_000
