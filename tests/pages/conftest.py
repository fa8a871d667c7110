"""The browser of the tests of reports and of the site."""

import pytest

from tests.browser import Browser


@pytest.fixture(scope="package")
def browser(tmp_path_factory):
    made = Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()
