"""The documentation as a site: it is built without a warning, reads as on GitHub, and can be searched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread

import pytest
import yaml
from markdown_it import MarkdownIt

from nnilite.testing.listener import PromptServer
from platforms.chromium import OpenPage

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PUBLIC = {path.stem for path in (ROOT / "nnilite").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
BLOCKS = {"h2", "ol", "ul", "li", "table", "td", "pre"}

# It is built once, in 8 s of a processor.
pytestmark = [pytest.mark.process, pytest.mark.xdist_group("site"), pytest.mark.timeout(600)]


def built(config: Path, folder: Path) -> list[str]:
    """Build a site; return its warnings and errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(config), "-d", str(folder)]
    made = subprocess.run(
        command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=500
    )
    told = [line for line in made.stderr.splitlines() if not line.startswith("INFO")]
    assert bool(told) == bool(made.returncode), made.stderr
    return told


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert built(ROOT / "mkdocs.yml", folder) == []
    return folder


class Structure(HTMLParser):
    """Counts the elements of a page's text."""

    def __init__(self, html: str, inside: bool) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self._inside = inside
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._inside = self._inside or tag == "article"
        if self._inside and tag in BLOCKS:
            self.found[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "article"


def test_pages_have_the_lists_tables_and_blocks_that_github_shows(site: Path) -> None:
    github = MarkdownIt("commonmark").enable("table")
    different = {}
    for page in DOCS.rglob("*.md"):
        text = page.read_text("utf-8")
        if "\n:::" in text:  # docstrings, which are only there
            continue
        html = site / page.relative_to(DOCS).with_name(
            "index.html" if page.name == "README.md" else f"{page.stem}.html"
        )
        here, there = Structure(html.read_text("utf-8"), False).found, Structure(github.render(text), True).found
        if here != there:
            different[page.relative_to(DOCS).as_posix()] = {"site": here - there, "github": there - here}
    assert different == {}, "indent what belongs to a list by four spaces, and put an empty line before each list"


def test_public_modules_have_their_page() -> None:
    shown = {
        line.partition(".")[2] for page in DOCS.rglob("*.md") for line in page.read_text().splitlines() if ":::" in line
    }
    missing = {name for name in PUBLIC if not name.startswith("_")} - shown
    assert missing == set(), "docs/reference/api"


def test_docstrings_are_on_the_pages(site: Path) -> None:
    page = (site / "reference/api/tuners.html").read_text("utf-8")
    assert "Return one set of parameters" in page
    assert "<blockquote" not in (site / "reference/api/services.html").read_text("utf-8")  # examples are code


def test_examples_are_pages_that_links_lead_to(site: Path) -> None:
    assert 'href="examples/redis.html#configyaml"' in (site / "index.html").read_text("utf-8")
    assert 'href="../examples/slurm.html#configyaml"' in (site / "how-to/slurm.html").read_text("utf-8")
    assert 'id="configyaml"' in (site / "examples/redis.html").read_text("utf-8")


def test_what_is_broken_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/README.md").write_text("# Docs\n\n## Learn\n\n- [Other](other.md)\n- [Gone](gone.md)\n")
    (tmp_path / "docs/other.md").write_text("# Other\n\n[a](README.md#nowhere), [b](/absolute.md), [c](lost.md)\n")
    (tmp_path / "docs/forgotten.md").write_text("# Not in the index\n")
    hooks = [str(ROOT / "scripts/site_hooks.py")]
    config = {"INHERIT": str(ROOT / "mkdocs.yml"), "hooks": hooks, "plugins": [], "theme": {"name": "mkdocs"}}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    told = "\n".join(built(tmp_path / "mkdocs.yml", tmp_path / "site"))
    for fault in ("'gone.md'", "'#nowhere'", "'/absolute.md'", "'lost.md'", "- forgotten.md"):
        assert fault in told


def diagrams() -> Iterator[tuple[str, str]]:
    for page in DOCS.rglob("*.md"):
        for token in MarkdownIt("commonmark").parse(page.read_text("utf-8")):
            if token.type == "fence" and token.info == "mermaid":
                yield str(page.relative_to(DOCS)), token.content


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with PromptServer(("127.0.0.1", 0), partial(_Quiet, directory=site)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.real
def test_the_site_can_be_searched_and_draws_diagrams_without_the_internet(address: str, open_page: OpenPage) -> None:
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/how-to/slurm.html")
    page.locator("div.mermaid").wait_for()
    for place, diagram in diagrams():
        assert page.evaluate("text => mermaid.parse(text).then(() => '', error => error.message)", diagram) == "", place
    page.keyboard.press("f")
    page.keyboard.type("full disk")
    page.locator(".md-search-result__link", has_text="When a disk is full").first.click()
    page.wait_for_url("**/crashes-and-resume.html*")
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
