"""The site of `make site`, opened as files: no network, each screen, both colours, and the search."""

import json
import os
import re
import subprocess

import pytest

from tests.browser.test_report_page import MINUTES, ROOT, chromium

SITE = ROOT / "build" / "site"
PAGES = ("index.html", "docs/cli.html", "docs/performance.html", "docs/api/recordmill.html")
SEARCH = "search.html?q=collate"
EXTERNAL = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["'](?:https?:)?//[^>]*>""")


def test_nothing_comes_from_elsewhere():
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > 80
    assert [(page.name, tag) for page in pages for tag in EXTERNAL.findall(page.read_text())] == []
    styles = {path.name: path.read_text() for path in (SITE / "_static").rglob("*.css")}
    assert [name for name, text in styles.items() if re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", text)] == []


@pytest.fixture(scope="module")
def opened() -> list[dict]:
    command = ["node", ROOT / "tests" / "browser" / "site.mjs", chromium()]
    urls = [f"{SITE.as_uri()}/{page}" for page in (*PAGES, SEARCH)]
    environment = {**os.environ, "BROWSER_MODULES": str(ROOT / ".browser" / "node_modules")}
    run = subprocess.run(
        [*command, *urls], env=environment, stdout=subprocess.PIPE, check=True, timeout=60 * MINUTES, text=True
    )
    return json.loads(run.stdout)


def test_pages_on_all_screens(opened):
    assert len(opened) == 4 * (len(PAGES) + 1)
    for page in opened:
        assert (page["errors"], page["requests"], page["brokenImages"]) == ([], [], []), page["url"]
        assert page["contentWidth"] <= page["width"], page["url"]
    assert len({page["background"] for page in opened}) == 2  # light and dark


def test_search_has_page_of_name(opened):
    pages = {link.split("#")[0].removeprefix(f"{SITE.as_uri()}/") for page in opened for link in page["links"]}
    assert {link.split("?")[0] for link in pages} >= {"docs/reading.html", "docs/api/recordmill.html"}
