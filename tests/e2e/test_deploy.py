"""The manager in a container: its first process goes on with the one experiment, and its manifests are sound."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nnilite.config import load
from nnilite.testing import eventually
from nnilite.testing.ports import free_port
from nnilite_kubernetes._adl import ADAPTDLJOBS
from nnilite_kubernetes._api import CLAIMS
from nnilite_kubernetes._checks import rights
from nnilite_kubernetes._frameworkcontroller import FRAMEWORKS
from nnilite_kubernetes._kubeflow import FLAVORS
from nnilite_kubernetes._node_pods import POD_GROUPS, SERVICES
from nnilite_kubernetes._plain_job import PlainJob
from nnilite_kubernetes._trainer import RUNTIMES
from platforms.kube.schemas import _of_core

DEPLOY = Path(__file__).parents[2] / "deploy"
MANAGER = DEPLOY / "manager.py"
POD = "io.k8s.api.core.v1.PodTemplateSpec"
CORE = {"Service": "io.k8s.api.core.v1.Service"}


def manifests() -> dict[tuple[str, str], Any]:
    """All objects by kind and name."""
    files = [DEPLOY / "kubernetes" / name for name in ("rights.yaml", "manager.yaml")]
    found = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def unknown_fields(kind: str, content: Any, place: str = "") -> Iterator[str]:
    """The fields that the Kubernetes client, which is made from the API's own description, has not heard of."""
    from kubernetes import client

    if kind.startswith("list["):
        for number, item in enumerate(content):
            yield from unknown_fields(kind[5:-1], item, f"{place}[{number}]")
    elif hasattr(client, kind):
        model = getattr(client, kind)
        fields = {wire: model.openapi_types[name] for name, wire in model.attribute_map.items()}
        for name, value in content.items():
            if name not in fields:
                yield f"{place}.{name}"
            else:
                yield from unknown_fields(fields[name], value, f"{place}.{name}")


@pytest.fixture
def entry() -> Any:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("deploy_manager", MANAGER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Container:
    """What a cluster does with the container: it starts the program, and ends it by SIGTERM."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.home = folder / "home"
        self.go = folder / "go"
        self.config = folder / "config.yaml"
        self.started = folder / "started"
        wait = f"touch {self.started}; until [ -e {self.go} ]; do sleep 0.1; done; {sys.executable}"
        content = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": wait + " -c 'import nnilite as n; n.get_next_parameter(); n.report_final_result(1.0)'",
            "trialCodeDirectory": ".",
            "trialConcurrency": 1,
            "maxTrialNumber": 1,
            "tuner": {"name": "Random"},
            "trainingService": {"platform": "local"},
        }
        self.config.write_text(json.dumps(content))
        self._environment = {**os.environ, "NNILITE_HOME": str(self.home), "NNILITE_LISTEN_PORT": str(self.port)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, MANAGER, self.config], env=self._environment)

    def end(self) -> int:
        """End it as a cluster does. Returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def probe(self) -> bool:
        asked = subprocess.run([sys.executable, MANAGER, "--probe"], env=self._environment, stderr=subprocess.DEVNULL)
        return asked.returncode == 0

    def asked(self, *words: str) -> Any:
        command = [sys.executable, "-m", "nnilite._cli", *words, "--json"]
        answer = subprocess.run(command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(answer.stdout or "[]")

    def trials(self) -> list[tuple[str, str]]:
        return [(one["id"], one["state"]) for one in self.asked("trial", "ls")]


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    found = Container(tmp_path)
    yield found
    found.go.touch()
    if found._process is not None and found._process.poll() is None:
        found.end()


def test_a_probe_before_the_manager_listens_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # which does not listen
        environment = {**os.environ, "NNILITE_LISTEN_PORT": str(taken.getsockname()[1])}
        command = [sys.executable, MANAGER, "--probe"]
        asked = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert asked.returncode == 1
    assert asked.stderr.startswith("ERROR: the manager does not answer (yet): ")
    assert asked.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="containers are Linux")
def test_the_next_container_goes_on_with_the_same_experiment_and_its_trial(container: Container) -> None:
    container.start()
    eventually(container.started.exists)
    [(trial, _)] = container.trials()
    assert container.probe()
    assert container.end() == 0
    assert not container.probe()
    container.go.touch()  # the trial ends while no manager is there
    container.start()
    eventually(lambda: container.trials() == [(trial, "SUCCEEDED")])
    assert len(container.asked("experiment", "list", "--all")) == 1
    assert container.end() == 0


@pytest.mark.parametrize(
    ("last", "command"),
    [("RUNNING", "resume"), ("INITIALIZED", "resume"), ("DONE", "view"), ("STOPPED", "view"), ("VIEWED", "view")],
)
def test_an_experiment_that_has_ended_is_only_shown(entry: Any, tmp_path: Path, last: str, command: str) -> None:
    (tmp_path / "manager.json").write_text(json.dumps({"state": last}))
    assert entry._command({"id": "abcd", "directory": str(tmp_path)}, "c.yaml") == [command, "abcd"]


def test_a_module_in_the_containers_folder_is_not_imported(
    entry: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    assert entry._experiments() == []


def test_an_empty_folder_gets_an_experiment_and_a_half_made_one_is_made_again(entry: Any, tmp_path: Path) -> None:
    assert entry._command(None, "c.yaml") == ["create", "--config", "c.yaml"]
    known = {"id": "abcd", "directory": str(tmp_path)}
    assert entry._never_ran(known)
    (tmp_path / "nnilite.sqlite").touch()
    assert not entry._never_ran(known)
    assert entry._command(known, "c.yaml") == ["resume", "abcd"]


def test_the_manifests_have_only_fields_that_kubernetes_knows() -> None:
    found = manifests()
    for (kind, _), content in found.items():
        assert list(unknown_fields(f"V1{kind}", content)) == []
    assert list(unknown_fields("V1Service", {"spec": {"porst": []}})) == [".spec.porst"]
    stateful = found["StatefulSet", "nnilite"]["spec"]
    for definition, content in ((POD, stateful["template"]), (CORE["Service"], found["Service", "nnilite"])):
        _of_core(definition, True).validate(content)


def test_the_role_has_the_rights_that_trials_as_jobs_need_and_no_others() -> None:
    given = {
        (group, thing, verb)
        for rule in manifests()["Role", "nnilite"]["rules"]
        for group in rule["apiGroups"]
        for thing in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {
        (resource.group, f"{resource.plural}/{part}" if part else resource.plural, verb)
        for resource, verb, part in rights(PlainJob.__new__(PlainJob), sends_code=False)
    }
    assert given - needed == {("", thing, "list") for thing in ("events", "resourcequotas", "limitranges")}
    assert needed <= given


def test_the_file_of_the_role_has_a_line_to_uncomment_for_all_that_other_trials_need() -> None:
    lines = re.findall(r"^ *# - (\{.*\})$", (DEPLOY / "kubernetes" / "rights.yaml").read_text(), re.MULTILINE)
    offered = {
        (rule["apiGroups"][0], thing, verb)
        for rule in map(yaml.safe_load, lines)
        for thing in rule["resources"]
        for verb in rule["verbs"]
    }
    kinds = {FRAMEWORKS, ADAPTDLJOBS, *(flavor.resource for flavor in FLAVORS.values())}
    needed = {(kind, verb) for kind in kinds for verb in ("create", "get", "list", "watch", "patch", "delete")}
    owned = {CLAIMS, SERVICES, POD_GROUPS, RUNTIMES}
    needed |= {(kind, verb) for kind in owned for verb in ("create", "get", "list", "patch", "delete")}
    assert {(kind.group, kind.plural, verb) for kind, verb in needed} - offered == set()


def test_the_parts_of_the_deployment_name_each_other() -> None:
    found = manifests()
    stateful, service = found["StatefulSet", "nnilite"]["spec"], found["Service", "nnilite"]["spec"]
    pod = stateful["template"]["spec"]
    container = pod["containers"][0]
    labels = stateful["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert stateful["selector"]["matchLabels"] == labels
    assert ("ServiceAccount", pod["serviceAccountName"]) in found
    volumes = {one["name"] for one in pod["volumes"]}
    volumes |= {one["metadata"]["name"] for one in stateful["volumeClaimTemplates"]}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["securityContext"]["runAsNonRoot"]


def test_the_example_of_the_deployment_can_be_loaded_and_names_its_service() -> None:
    config = load(DEPLOY / "kubernetes" / "config.yaml").checked()
    assert config.nni_manager_ip == "nnilite.research.svc"
    assert [platform for _, platform, _ in config.services] == ["kubernetes"]
