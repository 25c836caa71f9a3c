"""Every page of the site in a browser, wide and narrow: nothing is cut off, nothing is broken, nothing is fetched."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import pytest

from tests.support import site

pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> site.Visit:
    if site.CHROMIUM is None:
        assert not os.environ.get(site.REQUIRED_VARIABLE), f"{site.REQUIRED_VARIABLE} is set, chromium is not installed"
        pytest.skip("chromium is not installed: apt-get install chromium")
    folder = tmp_path_factory.mktemp("site")
    site.build(folder)
    return site.visit(folder)


def test_every_page_is_opened(visit):
    sources = list((site.ROOT / "docs").rglob("*.md"))

    assert len(visit.pages) == len(sources)


@pytest.mark.parametrize("width", [site.WIDE, site.NARROW])
def test_nothing_is_cut_off_at_the_right(visit, width):
    assert {page: opened.cut_off[width] for page, opened in visit.pages.items() if opened.cut_off[width]} == {}


def test_every_link_within_the_site_leads_to_its_place(visit):
    assert visit.broken_links() == []


def test_every_image_and_every_other_file_is_there(visit):
    assert visit.failures == []
    assert {page: opened.empty_images for page, opened in visit.pages.items() if opened.empty_images} == {}


def test_the_console_is_quiet(visit):
    assert visit.complaints == []


def test_no_request_leaves_loopback(visit):
    assert {urlsplit(request).netloc for request in visit.requests} == {urlsplit(visit.base).netloc}


def test_the_search_finds_what_is_on_the_pages(visit):
    assert any("Retention" in title for title in visit.found)


def test_a_command_is_copied_by_a_button(visit):
    assert visit.copied.strip() == "make demo"


def test_the_switch_turns_the_page_and_its_drawings_dark_and_back(visit):
    schemes, drawings = zip(*visit.schemes, strict=True)

    assert schemes == ("default", "default", "slate", "default")
    assert drawings[2] != drawings[1] == drawings[3]
