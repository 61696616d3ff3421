"""What a manager would do first, as a dry run shows it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from nnilite._experiments import registry
from nnilite._manager import assembly
from nnilite._manager.preview import preview
from nnilite._plugins.lookup import training_service_class
from nnilite.config import CheckedConfig, from_dict
from nnilite.errors import ConfigError
from nnilite.services import callback_address
from nnilite.services.cluster.queue_service import QueueService
from nnilite.testing.ports import free_port
from unit.test_options_by_platform import SECTIONS

pytestmark = pytest.mark.process  # the tuner has a process of its own

CONFIG = {
    "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
    "trialCommand": "true",
    "trialConcurrency": 1,
    "tuner": {"name": "GridSearch"},
    "trainingService": {"platform": "local"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "abcdefgh"
    directory.mkdir()
    registry.make_folders(directory)
    return directory


async def test_a_preview_has_the_first_parameters_and_the_job_without_its_token(folder: Path) -> None:
    first = await preview(folder, from_dict(CONFIG, folder).checked(), assembly.Address(port=8080))
    assert (first.parameters, first.unchecked) == ({"x": 1}, "")
    assert "********" in str(first.jobs["local"])
    assert list((folder / "trials").iterdir()) == []


async def test_a_preview_comes_from_the_assembly_of_a_manager(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assembled = []
    assemble = assembly.assemble
    monkeypatch.setattr(assembly, "assemble", lambda *given: assembled.append(assemble(*given)) or assembled[0])
    await preview(folder, from_dict(CONFIG, folder).checked(), assembly.Address(port=8080))
    assert [parts.engine.rules.settings.concurrency for parts in assembled] == [1]


async def test_gpus_that_this_machine_lacks_are_a_doubt_in_a_dry_run_and_an_error_where_trials_run(
    folder: Path,
) -> None:
    local = {"platform": "local", "useActiveGpu": True, "gpuIndices": "4000"}
    config = from_dict({**CONFIG, "trialGpuNumber": 1, "trainingService": local}, folder).checked()
    first = await preview(folder, config, assembly.Address(port=8080))
    assert first.unchecked.startswith("trialGpuNumber is 1, but ")
    assert "so trials cannot run here; remove it" in first.unchecked
    service = assembly.make_service(folder, config, assembly.Address(port=8080), wake=lambda: None)
    with pytest.raises(ConfigError, match="trialGpuNumber: is 1, but "):
        await service.open()


async def test_a_preview_tells_what_services_remark_on_their_machines(folder: Path) -> None:
    config = from_dict({**CONFIG, "trainingService": {"platform": "local", "niceness": 3}}, folder).checked()
    first = await preview(folder, config, assembly.Address(port=8080))
    assert [note for note in first.notes if "niceness 3" in note] == list(first.notes) != []


@pytest.mark.parametrize(
    ("distributed", "ranks"),
    [({}, 0), ({"nodes": 1}, 1), ({"nodes": 1, "processesPerNode": 3}, 3), ({"processesPerNode": "gpu"}, 64)],
)
def test_the_ranks_of_trials_are_counted_by_their_config(
    folder: Path, distributed: dict[str, object], ranks: int
) -> None:
    config = {**CONFIG, **({"distributed": distributed} if distributed else {})}
    assert assembly.count_ranks(from_dict(config, folder).checked()) == ranks


@pytest.mark.parametrize(
    ("command", "notes"),
    [
        ("pyhton3 trial.py", ("trialCommand: this machine has no program pyhton3; did you mean python3?",)),
        ("A=1 nice nosuchprogram", ("trialCommand: this machine has no program nosuchprogram",)),
        ("/opt/nothere/bin/python trial.py", ("trialCommand: this machine has no /opt/nothere/bin/python",)),
        ("module load tool && nosuchprogram", ()),
        ("export PATH=$PATH:/opt/x; nosuchprogram", ()),
        ("[ -e x ] || true", ()),
    ],
)
async def test_a_program_that_this_machine_lacks_is_a_remark(
    folder: Path, command: str, notes: tuple[str, ...]
) -> None:
    config = from_dict({**CONFIG, "trialCommand": command}, folder).checked()
    assert (await preview(folder, config, assembly.Address(port=8080))).notes == notes


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ('[{"parameter": {"x": 1}, "value": 0.5}]', ()),
        ('[{"parameter": {"x": 2}, "value": 0.5}]', ("searchFrom teaches the tuner nothing: of ",)),
    ],
)
async def test_results_that_teach_nothing_are_a_remark(folder: Path, results: str, said: tuple[str, ...]) -> None:
    source = folder / "results.json"
    source.write_text(results)
    config = from_dict({**CONFIG, "searchFrom": [str(source)]}, folder).checked()
    notes = (await preview(folder, config, assembly.Address(port=8080))).notes
    assert len(notes) == len(said)
    assert all(note.startswith(beginning) for note, beginning in zip(notes, said, strict=True))


async def test_a_source_of_results_that_is_missing_is_an_error_of_the_dry_run(folder: Path) -> None:
    config = from_dict({**CONFIG, "searchFrom": ["nothere"]}, folder).checked()
    with pytest.raises(ConfigError, match="nothere"):
        await preview(folder, config, assembly.Address(port=8080))


def _on(folder: Path, platform: str, **more: object) -> CheckedConfig:
    section = {"platform": platform, **SECTIONS[platform]}
    return from_dict({**CONFIG, "trainingService": section, **more}, folder).checked()


async def _find_nothing(*_: object) -> None:
    """What the platform has to say."""


def _silence(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    """Make a platform answer that it takes trials."""
    kind = training_service_class(platform)
    for question in ("log_in", "check_trials", "_checked"):
        if hasattr(kind, question):
            monkeypatch.setattr(kind, question, _find_nothing)


@pytest.mark.parametrize("platform", ["batch", "determined", "openpai", "ray", "slurm"])
async def test_a_dry_run_says_as_a_start_does_that_trials_could_not_reach_the_manager(
    folder: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    _silence(monkeypatch, platform)
    monkeypatch.setattr(callback_address, "_address_towards", lambda host, port: "nobody.invalid")
    with pytest.raises(ConfigError, match=r"nniManagerIp: trials would connect to .* start it with --host 0\.0\.0\.0"):
        await preview(folder, _on(folder, platform), assembly.Address(port=8080))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries of Azure's client
@pytest.mark.parametrize("platform", ["aml", "dlc"])
async def test_a_dry_run_says_as_a_start_does_that_a_cloud_needs_the_managers_address(
    folder: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    _silence(monkeypatch, platform)
    with pytest.raises(ConfigError, match=r"callback: .* cannot reach this manager"):
        await preview(folder, _on(folder, platform), assembly.Address(port=8080))


async def test_in_a_dry_run_something_listens_where_the_manager_would(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[object] = []

    async def check(self: object, api: object) -> None:
        checked.append(api)

    monkeypatch.setattr(callback_address, "_address_towards", lambda host, port: "0.0.0.0")
    monkeypatch.setattr(QueueService, "_checked", check)
    with socket.create_server(("127.0.0.1", 0)) as another:
        address = assembly.Address(port=another.getsockname()[1])
        first = await preview(folder, _on(folder, "slurm"), address)
        assert address.port == another.getsockname()[1]
    assert (first.unchecked, len(checked)) == ("", 1)


@pytest.mark.parametrize("more", [{"callback": "log"}, {"nniManagerIp": "192.0.2.1"}])
async def test_a_dry_run_does_not_doubt_a_way_that_the_user_has_chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, object]
) -> None:
    monkeypatch.setattr(callback_address, "_address_towards", lambda host, port: "nobody.invalid")
    monkeypatch.setattr(QueueService, "_checked", _find_nothing)
    assert (await preview(folder, _on(folder, "slurm", **more), assembly.Address(port=8080))).unchecked == ""


async def test_a_dry_run_says_that_redis_cannot_be_reached(folder: Path) -> None:
    port = free_port()
    section = {"platform": "redis", "redis": f"redis://127.0.0.1:{port}"}
    config = from_dict({**CONFIG, "trainingService": section}, folder).checked()
    first = await preview(folder, config, assembly.Address(port=8080))
    assert first.unchecked.startswith(f"no Redis can be reached at 127.0.0.1:{port}")
