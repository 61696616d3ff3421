"""What the code of trials sets and keeps, on the page, in exports and in the terminal; a hostile trial among them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.running import ended_experiment
from nnilite._cli.nnictl import run
from nnilite._running.manager_client import Client
from nnilite.testing import eventually
from platforms.chromium import faults

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

EVIL = "<img src=x onerror='document.title=`owned`'>"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
LONG = "norm_of_the_gradient_of_the_first_layer_of_the_encoder"
LINES = (
    "(one) => { const all = document.createRange(); all.selectNodeContents(one); return all.getClientRects().length; }"
)
TRIAL = (
    """
import base64, json, os, pathlib, nnilite
p = nnilite.get_next_parameter()
nnilite.set_attribute("device", "cpu")
nnilite.set_attribute("twice", p["x"] * 2)
nnilite.set_attribute(EVIL, EVIL)
nnilite.set_attribute("LONG", 1.8425105944845712e-7)
nnilite.log_artifact("losses", [{"step": n, "loss": p["x"] / (n + 1), "word": EVIL} for n in range(3)])
nnilite.log_artifact("words", "plain " + EVIL)
nnilite.log_artifact("curve", {"data": [{"type": "scatter", "name": EVIL, "x": [1, 2, 3], "y": [1.5, 2.5, p["x"]]}]})
nnilite.log_artifact("odd figure", {"data": [{"type": "scatter3d", "x": [1]}]})
nnilite.log_artifact("point", base64.b64decode(PNG))
folder = pathlib.Path(os.environ["NNI_OUTPUT_DIR"], "artifacts")
(folder / "false.png").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
lines = [
    {"name": EVIL, "file": "false.png", "kind": "image", "bytes": 10, "time": 1},
    {"name": "x", "file": "../../../config.json", "kind": "text", "bytes": 1, "time": 1},
    {"name": "y", "file": "losses", "kind": "constructor", "bytes": 1, "time": 1},
]
with (folder / "index.jsonl").open("a") as index:
    index.write("no line of ours\\n" + "".join(json.dumps(line) + "\\n" for line in lines))
nnilite.report_final_result(p["x"])
""".replace("EVIL", repr(EVIL))
    .replace("PNG", repr(PNG))
    .replace("LONG", LONG)
)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client, Path]]:
    """The address of an experiment of three trials that is done, a client of it, and a folder."""
    folder = tmp_path_factory.mktemp("it's $HOME")
    (folder / "trial.py").write_text(TRIAL)
    with ended_experiment(folder, {"x": {"_type": "choice", "_value": [1, 2, 3]}}, 3) as (entry, client):
        yield entry.url or "", client, folder


def first(client: Client) -> dict[str, Any]:
    return next(iter(client.trials()))


def test_attributes_are_on_the_trials_page_and_in_columns(look: Any, experiment: Any) -> None:
    url, client, _ = experiment
    trial = first(client)
    page = look(f"{url}/#/trials/{trial['id']}")
    card = page.get_by_role("region", name="Attributes")
    card.get_by_text("device", exact=True).wait_for()
    assert card.locator("dt").all_inner_texts() == ["device", "twice", EVIL, LONG]
    assert card.locator("dd").all_inner_texts()[:2] == ["cpu", str(trial["parameters"]["x"] * 2)]
    number = card.locator("dd").last
    assert (number.inner_text(), number.evaluate(LINES)) == ("1.8425105944845712e-7", 1), "the name gives way"
    look(f"{url}/#/trials?cols=sequence,a.twice&sort=-a.twice&a.twice=3..")
    page.get_by_text("2 of 3 trials").wait_for()
    cells = [row.split("\n")[-1] for row in page.locator(".grid [role=row]").all_inner_texts()[1:]]
    assert cells == ["6", "4"]
    assert faults(page) == []


OPEN_TEXTS = """() => [...document.querySelectorAll("body :not(noscript)")].filter((one) =>
    getComputedStyle(one).display === "inline" && getComputedStyle(one).unicodeBidi !== "isolate"
    && [...one.childNodes].some((part) => part.nodeType === Node.TEXT_NODE && part.data.trim())
).map((one) => one.outerHTML)"""


@pytest.mark.parametrize("view", ["", "trials?x=1..&a.device=cpu", "trials/{trial}", "experiment", "charts"])
def test_no_name_that_is_read_from_right_to_left_turns_what_stands_beside_it(
    look: Any, experiment: Any, view: str
) -> None:
    """A character such as U+202E, in the name of a parameter, counts up to the end of an element that is isolated."""
    url, client, _ = experiment
    page = look(f"{url}/#/{view.format(trial=first(client)['id'])}")
    page.get_by_role("heading").first.wait_for()
    assert page.evaluate(OPEN_TEXTS) == []


Y_SCALE = """(type) => import(new URL("parts/artifacts.js", document.baseURI)).then(({ figureOption }) => figureOption({
  x: { type: "value" }, y: { type: "value" }, traces: [{ type, name: "a", mode: "lines", points: [[1, 7]] }],
}).yAxis.scale)"""


def test_artifacts_are_shown_by_their_kind_and_run_nothing(look: Any, experiment: Any) -> None:
    url, client, _ = experiment
    trial = first(client)
    page = look(f"{url}/#/trials/{trial['id']}?tab=artifacts")
    table = page.get_by_role("region", name="losses")
    table.get_by_role("table").wait_for()
    assert table.locator("td.number").all_inner_texts()[:2] == ["0", str(trial["parameters"]["x"])]
    assert table.locator("th.number").all_inner_texts() == ["step", "loss"], "heads stand above their numbers"
    assert table.get_by_text(EVIL).count() == 3
    page.get_by_role("region", name="words").get_by_text(f"plain {EVIL}").wait_for()
    page.get_by_role("region", name="curve").locator(".chart[data-ready]").wait_for()
    assert [page.evaluate(Y_SCALE, kind) for kind in ("bar", "scatter")] == [False, True], "bars begin at 0"
    page.get_by_role("region", name="odd figure").get_by_text("draws no figures of the type scatter3d").wait_for()
    image = page.get_by_role("region", name="point").locator("img")
    eventually(lambda: image.evaluate("one => one.naturalWidth") == 1)
    page.get_by_text("This file is not an image.").wait_for()
    assert page.get_by_role("region", name="y").get_by_text("can be downloaded only").count() == 1
    assert page.get_by_role("region", name="x", exact=True).count() == 0, "no file outside of the folder"
    assert page.locator("main img").count() == 1
    assert page.title() != "owned"
    assert faults(page) == []


def test_exports_and_commands_have_attributes(experiment: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, client, folder = experiment
    target = folder / "all.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNILITE_HOME", str(folder / "home"))
        experiment_id, trial = client.profile()["id"], first(client)
        assert run(["experiment", "export", experiment_id, "-f", str(target), "-t", "csv", "--all"]) == 0
        assert run(["trial", "show", experiment_id, "-T", trial["id"]]) == 0
    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert [float(row["attribute.twice"]) for row in rows] == [2 * float(row["x"]) for row in rows]
    assert {row["attribute.device"] for row in rows} == {"cpu"}
    assert f"twice: {trial['parameters']['x'] * 2}" in capsys.readouterr().out
    assert all(one["attributes"]["twice"] == one["parameters"]["x"] * 2 for one in client.trials())


def test_the_timeline_has_the_further_attempt_of_a_trial_that_runs_again(look: Any, experiment: Any) -> None:
    url, client, _ = experiment
    page = look(f"{url}/#/charts/timeline")
    before = sum(len(client.trial(trial["id"])["attempts"]) for trial in client.trials())
    page.get_by_text(f"{before} attempts on").wait_for()
    page.wait_for_timeout(4000)  # it has asked again
    client.rerun(ids=[first(client)["id"]])
    page.get_by_text(f"{before + 1} attempts on").wait_for(timeout=30_000)


def test_a_time_that_no_calendar_has_is_left_out(look: Any, experiment: Any) -> None:
    """Those of files and artifacts are a trial's own."""
    url, client, _ = experiment
    page = look(f"{url}/#/trials/{first(client)['id']}")
    states = "import(new URL('parts/states.js', document.baseURI))"
    shown = page.evaluate(f"{states}.then((it) => [8e12, 1e13, -1e300].map((at) => typeof it.Time({{ at }})))")
    assert shown == ["object", "string", "string"]


def test_a_config_that_is_copied_from_the_page_reads_as_the_same(look: Any, experiment: Any) -> None:
    url, client, _ = experiment
    page = look(f"{url}/#/trials/{first(client)['id']}")
    texts = [".5", ".", "./x", ".inf", ".NaN", "~", "~/x", "on", "null", "a b", "a: b", "-1", "", "Yes", "1e5", "a\nb"]
    given = {"texts": texts, "on": 1, "no": {"null": 2, "y.x": [".5"]}, "numbers": [0.5, 10**15, True, None]}
    code = "(given) => import(new URL('parts/yaml.js', document.baseURI)).then((it) => it.yaml(given))"
    assert yaml.safe_load(page.evaluate(code, given)) == given
