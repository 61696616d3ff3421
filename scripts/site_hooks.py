"""What the site of the documentation needs beyond MkDocs: its navigation, the examples, diagrams without the internet.

docs/README.md is the only table of contents. A page that it does not name is outside of the navigation, and the
build fails.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
MERMAID = ROOT / "node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js"
"""Of version 11, for which the theme has its colours; what version 12 draws cannot be read in the dark."""
LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+\.(?:md|example))\)")
EXAMPLE_LINK = re.compile(r"\]\((?:\.\./)+examples/([\w-]+)/([\w./-]+)\)")
OTHER_LINK = re.compile(r"\]\((?:\.\./)+(CHANGELOG\.md|CONTRIBUTING\.md|SECURITY\.md|\.nniignore\.example)\)")
OTHERS = {
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    ".nniignore.example": "nniignore.txt",
}
"""Files beside docs/ that its pages link to, and where they are in the site."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".sh": "sh", ".toml": "toml"}

Nav = list[dict[str, Any]]


def on_config(config: MkDocsConfig) -> None:
    config["nav"] = navigation(Path(config.docs_dir))
    if MERMAID.exists():  # else the theme loads it from the internet
        config.extra_javascript.append("assets/mermaid.js")
    if "MIKE_DOCS_VERSION" in os.environ:  # the list of versions lies beside the versions, which mike puts there
        config.extra["version"] = {"provider": "mike"}


def on_files(files: Files, config: MkDocsConfig) -> None:
    for folder in example_folders():
        files.append(File.generated(config, f"examples/{folder.name}.md", content=example_page(folder)))
    for name, place in OTHERS.items():
        text = (ROOT / name).read_text("utf-8")
        text = text.replace("](docs/", "](")
        for other, elsewhere in OTHERS.items():
            text = text.replace(f"]({other})", f"]({elsewhere})")
        files.append(File.generated(config, place, content=text))
    if MERMAID.exists():
        files.append(File.generated(config, "assets/mermaid.js", abs_src_path=str(MERMAID)))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to files beside docs/ lead to where these files are in the site."""
    up = "../" * page.file.src_uri.count("/")
    markdown = EXAMPLE_LINK.sub(lambda link: f"]({up}examples/{link[1]}.md#{anchor(link[2])})", markdown)
    return OTHER_LINK.sub(lambda link: f"]({up}{OTHERS[link[1]]})", markdown)


def navigation(docs: Path) -> Nav:
    """Return the navigation: headings of docs/README.md are sections, lines with their lists are groups of pages."""
    sections: Nav = [{"Start": "README.md"}]
    group: Nav = []
    for line in (docs / "README.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            group = []
            section = group
            sections.append({line[3:]: section})
        elif line.startswith("- "):
            group += [{title: pages_below(docs, target)} for title, target in LINK.findall(line)]
        elif len(sections) > 1 and re.fullmatch(r"[A-Z][\w ,]+", line):
            group = []
            section.append({line: group})
    return [part for part in sections if all(part.values())] + [
        {"Examples": [{folder.name: f"examples/{folder.name}.md"} for folder in example_folders()]}
    ]


def pages_below(docs: Path, target: str) -> str | list[Any]:
    """Return the page itself; for an index also all pages next to it and below it."""
    if not target.endswith("/index.md"):
        return OTHERS.get(target.removeprefix("../"), target)
    index = docs / target
    others = sorted(path for path in index.parent.rglob("*.md") if path != index)
    return [target, *(path.relative_to(docs).as_posix() for path in others)]


def example_folders() -> list[Path]:
    return sorted(path for path in EXAMPLES.iterdir() if path.is_dir() and any(path.glob("*.*")))


def example_page(folder: Path) -> str:
    """All files of an example under each other; its own README first."""
    parts = [f"# {folder.name}\n\nThe files of `examples/{folder.name}`.\n"]
    for path in sorted(folder.iterdir()):
        if path.name == "README.md":
            text = re.sub(r"^#", "##", path.read_text("utf-8"), flags=re.MULTILINE)
            parts.insert(1, text.replace("](../../docs/", "](../") + f'\n<a id="{anchor(path.name)}"></a>\n')
        elif path.suffix == ".ipynb":
            parts.append(f"## {path.name}\n\n{notebook_text(path)}\n")
        elif path.suffix in LANGUAGES:
            parts.append(f"## {path.name}\n\n```{LANGUAGES[path.suffix]}\n{path.read_text('utf-8').rstrip()}\n```\n")
    return "\n".join(parts)


def notebook_text(path: Path) -> str:
    """Return the cells of a notebook, without what they have printed."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(path.read_text("utf-8"))["cells"]]
    return "\n\n".join(
        f"```python\n{text}\n```" if kind == "code" else re.sub(r"^#", "###", text, flags=re.MULTILINE)
        for kind, text in cells
    )


def anchor(name: str) -> str:
    """Return the anchor of a heading that is a file's name."""
    return re.sub(r"[^\w\- ]", "", name.lower())
