"""A shared storage that an installed plugin adds, in the manager and in keepers on machines of their own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keeper_bench import Bench, pythons
from nnilite._checkpoints.shared_storage import SharedStorage
from nnilite._plugins import lookup
from nnilite.config import SharedStorageConfig
from nnilite.errors import ConfigError, ServiceError

pytestmark = pytest.mark.process

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "shared-storage.md"
WORKS = (
    'mkdir -p "$NNILITE_CHECKPOINT_DIR"; f="$NNILITE_CHECKPOINT_DIR/epoch"; n=$(cat "$f" || echo 0); '
    'echo $((n + 1)) >"$f"; echo "after $n" >"$NNI_OUTPUT_DIR/out.txt"; exit '
)


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the example of the docs as a distribution."""
    about = tmp_path / "plugins" / "lab_vault-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-vault\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[nnilite.storages]\nvault = lab_vault:describe\n")
    text = next(
        block for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL) if "PROGRAM" in block
    )
    (about.parent / "lab_vault.py").write_text(text.replace("/vault/", f"{tmp_path}/the vault/"))
    monkeypatch.syspath_prepend(about.parent)
    lookup.installed.cache_clear()
    yield
    sys.modules.pop("lab_vault", None)
    lookup.installed.cache_clear()


@pytest.fixture
def storage() -> SharedStorage:
    config = SharedStorageConfig(storage_type="vault", options={"shelf": "search"})
    return SharedStorage(config, "exp", "all", {})  # type: ignore[arg-type]


def _run(folder: Path, number: int, storage: SharedStorage, code: int) -> Bench:
    folder.mkdir()
    with Bench(folder, pythons()[0]) as bench:
        bench.run(WORKS + str(code), attempt=number, storage=storage.entry, trial="t")
    return bench


def test_a_trial_goes_on_from_the_storage_of_a_plugin(storage: SharedStorage, tmp_path: Path) -> None:
    storage.prepare(tmp_path)
    for number, code in enumerate((3, 0)):
        bench = _run(tmp_path / f"host{number}", number, storage, code)
        assert bench.callback.exits[0].code == code
        assert "storage" not in bench.callback.exits[0].message
    kept = tmp_path / "the vault" / "search" / "nni" / "exp"
    assert (kept / "trials" / "t" / "1" / "out.txt").read_text() == "after 1\n"


def test_a_storage_that_is_away_is_named_with_its_trouble(storage: SharedStorage, tmp_path: Path) -> None:
    (tmp_path / "the vault").write_text("no folder")
    with pytest.raises(ServiceError, match=r"sharedStorage: vault: .*Not a directory"):
        storage.prepare(tmp_path)


def test_a_name_that_no_plugin_has_is_refused_with_those_that_exist() -> None:
    words = r"no storage 'vaults'; did you mean 'vault'\? .* nnilite has AzureBlob, NFS, S3"
    with pytest.raises(ConfigError, match=words) as found:
        SharedStorageConfig(storage_type="vaults")
    assert found.value.place.field == "storageType"


def test_options_are_for_plugins_alone() -> None:
    config = SharedStorageConfig(storage_type="S3", bucket="b", options={"shelf": "x"})
    assert config.hints() == ["sharedStorage.options has no effect: it is for plugins, and storageType is S3"]
