"""The doctor looks at each host, and not only at those of its one trial."""

from __future__ import annotations

import json

import pytest
import yaml

from nnilite._cli.nnictl import run
from platforms.hosts.hosts import USER

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(200)]


def test_the_doctor_names_each_host_without_the_launcher_and_each_that_is_away(
    hosts, setting, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    hosts[2].power_off()
    login = {"user": USER, "sshKeyFile": str(setting.key)}
    section = {"platform": "remote", "machineList": [{"host": host.address, **login} for host in hosts]}
    section |= {"knownHostsFile": str(setting.known_hosts), "sshConfigFile": str(setting.ssh_config)}
    config = {"searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}}, "trialCommand": "python3 trial.py"}
    config |= {
        "maxTrialNumber": 1,
        "trialConcurrency": 1,
        "trialCodeDirectory": str(setting.folder),
        "trainingService": section,
    }
    told = {"nodes": 1, "launcher": "horovod"}  # which no host has
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**config, "distributed": told}))
    assert run(["doctor", str(path), "--json", "-p", "0"]) == 1
    found = [one["what"] for one in json.loads(capsys.readouterr().out)["findings"] if one["level"] == "FAULT"]
    hosts[2].power_on()
    for host in hosts[:2]:
        assert f"{host.address} has no horovodrun, which launcher horovod needs" in found
    assert any(what.startswith(f"{hosts[2].address} is down: ") for what in found)
