"""The site of docs/: built strictly, whole, and without anything that asks a network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from lmassay.errors import CODES

ROOT = Path(__file__).parent.parent
#: What a browser fetches by itself: attribute by element.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
#: `link` elements that only say where something is.
NOT_FETCHED = {"canonical", "next", "prev", "alternate"}


class _Page(HTMLParser):
    """What a page makes a browser fetch, the headings it has, and the links it holds."""

    def __init__(self, text):
        super().__init__()
        self.fetched, self.ids, self.links = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if given.get("id"):
            self.ids.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in FETCHED and given.get(FETCHED[tag]) and given.get("rel") not in NOT_FETCHED:
            self.fetched.append(given[FETCHED[tag]])


def _configuration():
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("", lambda loader, suffix, node: None)
    return yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)


def _pages(nav):
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from _pages(value) if isinstance(value, list) else [value]


def test_every_page_has_its_place_and_every_place_a_page():
    """But errors, which the hooks list, and pages that are made from files elsewhere."""
    listed = list(_pages(_configuration()["nav"]))
    there = {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    made = {"architecture.md", "changelog.md", "example-method.md"}
    assert len(listed) == len(set(listed))
    assert set(listed) - made == {p for p in there if not p.startswith("errors/")}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(out)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.relative_to(out).as_posix(): _Page(path.read_text()) for path in out.rglob("*.html")}


@pytest.mark.slow
def test_a_page_fetches_nothing_from_elsewhere(site):
    assert len(site) > 60
    away = [f"{name}: {what}" for name, page in site.items() for what in page.fetched if re.match(r"(?:\w+:)?//", what)]
    assert not away


@pytest.mark.slow
def test_links_and_anchors_within_the_site_lead_somewhere(site):
    for name, page in site.items():
        for link in page.links:
            if re.match(r"\w+:|//", link) or name == "404.html":
                continue
            target, _, anchor = link.partition("#")
            path = (Path("/") / Path(name).parent / target).resolve().relative_to("/").as_posix() if target else name
            path = "index.html" if path == "." else path
            if path in site:
                assert not anchor or anchor in site[path].ids, f"{name}: {link}"
            else:
                assert not target.endswith(".html"), f"{name}: {link}"


@pytest.mark.slow
def test_errors_have_an_index_and_what_is_imported_is_described(site):
    assert {f"errors/{code}.html" for code in CODES} <= set(site["errors.html"].links)
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        names = re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
        assert set(names) <= site[f"reference/{page.stem}.html"].ids, page.name
