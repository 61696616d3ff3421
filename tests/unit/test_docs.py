"""The documentation keeps its word: generated pages are up to date, links lead somewhere, maps name what exists."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import nnilite
from nnilite import Search
from nnilite._cli import archive, nnictl
from nnilite._cli.command_line import USAGE
from nnilite._cli.ctrl_c import INTERRUPTED, TERMINATED
from nnilite.config import ExperimentConfig, json_schema
from nnilite.config._record import record_of
from nnilite.config._services import find_service_record
from nnilite.service import TrainingService

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


def links(page: Path) -> Iterator[tuple[Path, str]]:
    for match in LINK.finditer(FENCE.sub("", page.read_text("utf-8"))):
        target = match.group(1) or match.group(2)
        if "://" not in target and not target.startswith("mailto:"):
            path, _, anchor = target.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ +(.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.process
def test_pages_made_from_the_code_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "reference_pages.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in links(page):
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(f"{target.relative_to(ROOT)}#{anchor}")
    assert broken == []


def test_every_page_can_be_found_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    seen, todo = set(), [index]
    while todo:
        page = todo.pop()
        if page not in seen and page.is_file() and page.suffix == ".md":
            seen.add(page)
            todo += [target for target, _ in links(page)]
    assert sorted(str(page.relative_to(ROOT)) for page in set((ROOT / "docs").rglob("*.md")) - seen) == []


def test_the_index_names_every_example() -> None:
    text = (ROOT / "docs" / "README.md").read_text("utf-8")
    assert [path.name for path in (ROOT / "examples").iterdir() if f"examples/{path.name}/" not in text] == []


def test_the_sdk_page_names_all_that_trial_code_can_import() -> None:
    text = (ROOT / "docs" / "reference" / "sdk.md").read_text("utf-8")
    assert [name for name in nnilite.__all__ if name not in text] == []


def objects(schema: object) -> Iterator[set[str]]:
    """Yield the fields of each object that a schema describes, at any depth."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield set(schema["properties"])
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


def test_the_reference_of_the_config_has_a_table_for_each_object_in_it() -> None:
    text = (ROOT / "docs" / "reference" / "config.md").read_text("utf-8")
    tables = [set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) for part in text.split("\n## ")[1:]]
    of_all = {"platform", *next(names for names in tables if {"maxTrials", "weight"} <= names)}
    found = list(objects(json_schema()["properties"]))
    assert len(found) > 40
    assert [sorted(names) for names in found if not any(names - of_all <= table for table in tables)] == []


def test_the_page_on_nni_names_all_fields_that_nni_has_not() -> None:
    of_nni = yaml.safe_load((ROOT / "scripts" / "nni_3_names.yaml").read_text("utf-8"))["config"]
    text = (ROOT / "docs" / "explanation" / "what-differs-from-nni.md").read_text("utf-8")
    listed = text.partition("Additional fields:")[2].partition("[The configuration file]")[0]
    named = set(re.findall(r"`(\w+)`", listed))
    ours = {entry.key for entry in record_of(ExperimentConfig).entries} - set(of_nni["experiment"])
    of_local = {entry.key for entry in find_service_record("local").entries} - set(of_nni["local"])
    assert named == ours | of_local - set(of_nni["experiment"])


def test_the_page_on_exit_codes_has_those_of_nnictl() -> None:
    text = (ROOT / "docs" / "reference" / "exit-codes.md").read_text("utf-8").partition("## Trials")[0]
    codes = {nnictl.DONE, nnictl.ERROR, USAGE, nnictl.NOT_FOUND, nnictl.CONFLICT, nnictl.UNREACHABLE, nnictl.FAILED}
    codes |= {nnictl.OWING, nnictl.NONE_SUCCEEDED, INTERRUPTED, TERMINATED}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == codes


def test_the_page_on_files_names_all_that_is_saved() -> None:
    text = (ROOT / "docs" / "reference" / "files-on-disk.md").read_text("utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| `experiment/` |"))
    assert {name.rstrip("/") for name in re.findall(r"`([^`]+)`", row)} == archive.KEPT | {"experiment"}


@pytest.mark.parametrize("function", [Search.__init__, Search.run])
def test_the_page_of_the_python_api_has_all_arguments_of_a_search(function: Callable[..., object]) -> None:
    text = (ROOT / "docs" / "reference" / "python-api.md").read_text("utf-8").partition("## Search")[2]
    names = [name for name in inspect.signature(function).parameters if name not in {"self", "others"}]
    call = next(found for found in re.findall(r"`(?:Search|run)\(([^`]*)\)`", text) if found.startswith(names[0]))
    assert re.findall(r"(?:^|, )\**(\w+)", call) == names


def test_the_page_on_services_names_all_that_a_service_may_do() -> None:
    text = (ROOT / "docs" / "how-to" / "write-a-training-service.md").read_text("utf-8")
    methods = {name for name, found in vars(TrainingService).items() if inspect.isfunction(found) and name[0] != "_"}
    assert sorted(name for name in methods - {"check_open"} if f"`{name}" not in text) == []


MAP = (ROOT / "docs/explanation/architecture.md").read_text()


@pytest.mark.parametrize(
    "page", ["docs/explanation/architecture.md", "docs/how-to/add-to-nnilite.md", "CONTRIBUTING.md"]
)
def test_every_file_that_a_map_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"(?<![\w./])(?:nnilite|training_services|tuners|tests|scripts|docs)/[\w./-]*\w", text))
    assert len(named) > 5
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_every_function_that_the_map_names_exists() -> None:
    named = set(re.findall(r"`nnilite\.(\w+)\(", MAP))
    assert named
    assert [name for name in named if not hasattr(nnilite, name)] == []


def test_the_map_has_the_rows_of_the_import_contract_in_their_order() -> None:
    contract = re.search(
        r'containers = \["nnilite"\].*?layers = \[(.*?)\]', (ROOT / "pyproject.toml").read_text(), re.DOTALL
    )
    assert contract is not None
    heights = {name: row for row, line in enumerate(contract[1].splitlines()) for name in re.findall(r"\w+", line)}
    table = MAP.partition("## Who may import whom")[2]
    rows = [re.findall(r"`nnilite/(\w+)", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]
    assert [len({heights[name] for name in row}) for row in rows] == [1] * len(rows)
    assert sorted(rows, key=lambda row: heights[row[0]]) == rows
