"""Measure the language of docs, docstrings, messages and names, and compare it with the ceilings.

    scripts/prose_meter.py            print a table for each folder; exit with 1 if a figure is above its ceiling
    scripts/prose_meter.py --lower    lower the ceilings to the present figures; no ceiling is ever raised
    scripts/prose_meter.py --quiet    print no table
    scripts/prose_meter.py --show     print each place with an odd word instead

`scripts/prose_words.yaml` lists the words, `scripts/prose_ceilings.yaml` the ceilings. Pages that are made from the
code do not count, since their text counts where it is written. Code and links in the pages do not count either.

vale would do for docs, but its packages on PyPI and npm fetch the program itself from GitHub, so a machine without
access to GitHub could not lint. proselint takes no list of words. Neither measures names and docstrings.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
WORDS = ROOT / "scripts" / "prose_words.yaml"
CEILINGS = ROOT / "scripts" / "prose_ceilings.yaml"
SOURCES = ("nnilite", "training_services", "tuners")
GENERATED = {f"docs/reference/{name}.md" for name in ("cli", "config", "options-by-platform", "python-api", "rest")}
MESSAGE_MIN = 4  # words of a string that somebody reads; shorter ones are mostly keys and values
CODE = re.compile(r"^(```|~~~).*?^\1|<!--.*?-->|`[^`\n]*`|\]\([^)\n]*\)", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[A-Za-z][\w'-]*")

Place = tuple[Path, int]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Counts = dict[str, Counter[str]]  # by folder


class Words:
    """The lists of `prose_words.yaml`, ready to search with."""

    def __init__(self) -> None:
        lists = yaml.safe_load(WORDS.read_text())
        allowed, odd = (
            "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in lists[name]) for name in ("allowed", "odd")
        )
        self.phrase = re.compile(rf"(?<![\w'-])(?:{allowed}|(?P<odd>{odd}))(?![\w'-])", re.IGNORECASE)
        self.verbs = set(lists["verbs"].split())
        self.prepositions = set(lists["prepositions"].split())
        forms = {form for verb in self.verbs for form in forms_of(verb)}
        self.verb_forms = forms | set(lists["more verb forms"].split())

    def odd(self, text: str) -> Iterator[re.Match[str]]:
        return (match for match in self.phrase.finditer(text) if match["odd"])

    def has_verb(self, sentence: str) -> bool:
        return any(word.lower() in self.verb_forms for word in WORD.findall(sentence))


def forms_of(verb: str) -> Iterator[str]:
    """Yield the verb as it is used in the present tense: "try" and "tries"."""
    yield verb
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        yield f"{verb[:-1]}ies"
    else:
        yield f"{verb}es" if verb.endswith(("s", "sh", "ch", "x", "z", "o")) else f"{verb}s"


def pages() -> Iterator[Path]:
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        if str(path.relative_to(ROOT)) not in GENERATED:
            yield path


def modules() -> Iterator[Path]:
    for source in SOURCES:
        yield from sorted((ROOT / source).rglob("*.py"))


def without_code(page: str) -> str:
    """Blank out code and links, and keep the line ends, so that lines still have their numbers."""
    return CODE.sub(lambda match: "code" + "\n" * match[0].count("\n"), page)


def folder_of(path: Path) -> str:
    """Return the name of the row of the table in which this file counts."""
    parts = path.relative_to(ROOT).parts[:-1]
    return "/".join(parts[:2]) or "."


def is_message(value: object) -> bool:
    return isinstance(value, str) and len(WORD.findall(value)) >= MESSAGE_MIN


class Meter:
    """Counts by kind of text and folder; `places` lists each odd word."""

    def __init__(self) -> None:
        self.words = Words()
        self.counts: dict[str, Counts] = {kind: defaultdict(Counter) for kind in KINDS}
        self.places: list[tuple[str, Path, int, str]] = []

    def measure(self) -> None:
        for page in pages():
            self.measure_text("docs", without_code(page.read_text("utf-8")), (page, 1))
        for module in modules():
            self.measure_module(module)

    def measure_text(self, kind: str, text: str, place: Place) -> None:
        path, line = place
        count = self.counts[kind][folder_of(path)]
        count["words"] += len(WORD.findall(text))
        for match in self.words.odd(text):
            count["odd"] += 1
            self.places.append((kind, path, line + text.count("\n", 0, match.start()), " ".join(match[0].split())))

    def measure_module(self, path: Path) -> None:
        tree = ast.parse(path.read_text("utf-8"))
        docstrings = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.measure_name(node, path)
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                docstrings.add(node.body[0].value)  # type: ignore[attr-defined]
                self.measure_docstring(node, text, (path, node.body[0].lineno))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node not in docstrings and is_message(node.value):
                self.measure_text("messages", str(node.value), (path, node.lineno))

    def measure_name(self, node: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> None:
        """Count a function, and whether its name begins with a verb. A property is a value."""
        if node.name.startswith("__") or any("property" in ast.unparse(mark) for mark in node.decorator_list):
            return
        count = self.counts["names"][folder_of(path)]
        count["all"] += 1
        first = node.name.strip("_").split("_")[0]
        # A predicate is a sentence on its first argument, such as `holds_slot`. Elsewhere such a word may be a plural.
        is_predicate = node.returns is not None and "bool" in ast.unparse(node.returns)
        count["no verb"] += first not in (self.words.verb_forms if is_predicate else self.words.verbs)

    def measure_docstring(self, node: ast.AST, text: str, place: Place) -> None:
        self.measure_text("docstrings", text, place)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return  # modules and classes are things: "The lists, ready to search with."
        first = text.split("\n\n")[0]
        count = self.counts["docstrings"][folder_of(place[0])]
        count["all"] += 1
        count["preposition"] += first.split()[0].lower() in self.words.prepositions
        count["no verb"] += not self.words.has_verb(first)


KINDS = ("docs", "docstrings", "messages", "names")
FIGURES = {
    "docs: odd words per 1,000": ("docs", "odd", "words", 1000),
    "docstrings: odd words per 1,000": ("docstrings", "odd", "words", 1000),
    "messages: odd words per 1,000": ("messages", "odd", "words", 1000),
    "docstrings that begin with a preposition, %": ("docstrings", "preposition", "all", 100),
    "docstrings without a verb, %": ("docstrings", "no verb", "all", 100),
    "functions whose names begin with no verb, %": ("names", "no verb", "all", 100),
}


def figure(counts: Counter[str], part: str, whole: str, scale: int) -> float | None:
    return counts[part] / counts[whole] * scale if counts[whole] else None


def figures(meter: Meter) -> dict[str, float]:
    """Return the figures of the whole repository."""
    totals = {kind: sum(counts.values(), Counter[str]()) for kind, counts in meter.counts.items()}
    return {name: figure(totals[kind], *rest) or 0.0 for name, (kind, *rest) in FIGURES.items()}  # type: ignore[arg-type]


def table(meter: Meter, whole: dict[str, float], ceilings: dict[str, float]) -> Iterator[str]:
    """Yield the lines of the table: a row for each folder, then the whole and the ceilings."""
    heads = ("docs, odd", "docstr., odd", "messages, odd", "preposition", "without verb", "name no verb")
    yield f"{'':34}" + "".join(f"{head:>14}" for head in heads)
    for folder in sorted({folder for counts in meter.counts.values() for folder in counts}):
        row = [figure(meter.counts[kind][folder], *rest) for kind, *rest in FIGURES.values()]  # type: ignore[arg-type]
        yield f"{folder:34}" + "".join(f"{'' if value is None else format(value, '.1f'):>14}" for value in row)
    for title, values in (("all", whole), ("ceiling", ceilings)):
        yield f"{title:34}" + "".join(f"{values[name]:>14.1f}" for name in FIGURES)


def lowered(ceilings: dict[str, float], whole: dict[str, float]) -> dict[str, float]:
    return {name: min(ceilings.get(name, math.inf), math.ceil(value * 10) / 10) for name, value in whole.items()}


def main() -> int:
    options = argparse.ArgumentParser(description="Measure the language of docs, docstrings, messages and names.")
    options.add_argument("--lower", action="store_true", help="lower the ceilings to the present figures")
    options.add_argument("--show", action="store_true", help="print each place with an odd word")
    options.add_argument("--quiet", action="store_true", help="print no table")
    given = options.parse_args()
    meter = Meter()
    meter.measure()
    if given.show:
        print(
            *(f"{path.relative_to(ROOT)}:{line}: {kind}: {word}" for kind, path, line, word in meter.places), sep="\n"
        )
        return 0
    whole = figures(meter)
    ceilings = yaml.safe_load(CEILINGS.read_text()) if CEILINGS.exists() else {}
    if given.lower:
        ceilings = lowered(ceilings, whole)
        head = "# The most that scripts/prose_meter.py allows. Its option --lower lowers these; never raise one.\n"
        CEILINGS.write_text(head + yaml.safe_dump(ceilings, sort_keys=False))
    if not given.quiet:
        print(*table(meter, whole, ceilings), sep="\n")
    above = [
        f"{name} is {value:.2f}, and the ceiling is {ceilings[name]}"
        for name, value in whole.items()
        if value > ceilings[name]
    ]
    if above:
        print("prose_meter:", "; ".join(above), "(find the words with --show, and write plainly)", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
