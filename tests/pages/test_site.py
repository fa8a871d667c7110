"""The site in a real browser: nothing is cut or missing, and the search finds what users type.

Needs Debian's `chromium`: `pytest -m browser`.
"""

import functools
from http.server import SimpleHTTPRequestHandler
from urllib.parse import quote

import pytest

from tests.browser import in_windows
from tests.builders import SEARCHED, build_site
from tests.servers import Server

pytestmark = pytest.mark.browser


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the site, which is served as the search needs it, and its pages."""
    folder = build_site(tmp_path_factory.mktemp("site"))
    pages = sorted(str(page.relative_to(folder)) for page in folder.rglob("*.html"))
    with Server(functools.partial(Quiet, directory=folder)) as server:
        yield server.url, pages


#: Elements that reach beyond the window and do not scroll in a box of their own, boxes that scroll although the window is
#: wide, and pictures that did not load.
TROUBLES = """(() => {
    const box = (each) => /(auto|scroll)/.test(getComputedStyle(each).overflowX);
    const scrolls = (each) => each && (box(each) || scrolls(each.parentElement));
    const cut = [...document.querySelectorAll('article *')].filter((each) =>
        (each.getBoundingClientRect().right > innerWidth + 1 && !scrolls(each))
        || (innerWidth > 1200 && box(each) && each.scrollWidth > each.clientWidth + 1));
    const empty = [...document.querySelectorAll('article img')].filter((each) => !each.naturalWidth);
    const wide = document.documentElement.scrollWidth > innerWidth ? [document.documentElement] : [];
    return [...cut, ...empty, ...wide].map((each) => each.outerHTML.slice(0, 80)).slice(0, 3);
})()"""


@in_windows
def test_nothing_is_cut_or_missing(browser, site, width, colours):
    address, pages = site
    found = {}
    for page in pages:
        browser.open(f"{address}/{page}", width, colours)
        if troubles := browser.value(TROUBLES):
            found[page] = troubles
    assert found == {}
    back = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (colours == "light")


@pytest.mark.parametrize(
    ("colours", "name"), [("light", "report.png"), ("dark", "report-dark.png")]
)
def test_the_first_page_has_a_picture_for_each_colour(browser, site, colours, name):
    browser.open(f"{site[0]}/index.html", 1300, colours)
    shown = browser.value("""[...document.querySelectorAll('article img')]
        .filter((each) => each.offsetWidth).map((each) => each.src.split('/').pop())""")
    assert shown == ["life.svg", name]


#: What users look for, and the pages that answer it.
ANSWERS = {
    "rename": "evolution",
    "resume": "series",
    "ema": "optax",
    "new head": "warm-starts",
    "msgpack": "foreign-files",
    "orbax": "orbax",
    "nqxpack": ("netket", "index"),
    "float16": "bundles",
    "ci": "ci",
}

#: The pages that a search found, when their number is no longer growing.
FOUND = """new Promise((done) => {
    const links = () => [...document.querySelectorAll('#search-results .search li > a')];
    const names = () => links().map((each) => each.getAttribute('href').split('.html')[0]);
    const poll = (before, left) => (before && before === names().length) || !left
        ? done(names()) : setTimeout(poll, 100, names().length, left - 1);
    poll(0, 100);
})"""


@pytest.mark.parametrize("word", [*SEARCHED, *ANSWERS])
def test_the_search_shows_the_answer_first_and_codes_last(browser, site, word):
    browser.open(f"{site[0]}/search.html?q={quote(word)}", 1300, "light")
    found = browser.value(FOUND, awaitPromise=True)
    codes = [page.startswith(("codes/", "diagnostics")) for page in found]
    assert found and codes == sorted(codes)
    if word in ANSWERS:
        wanted = ANSWERS[word]
        assert found[0] in ([wanted] if isinstance(wanted, str) else wanted)
