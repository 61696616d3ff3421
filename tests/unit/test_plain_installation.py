"""What `pip install nnilite` alone brings is enough for all but the parts that say which extra they need."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

PROGRAM = """
import importlib, pkgutil, sys
from importlib import metadata
from packaging.requirements import Requirement

def needed(name, found):
    for line in metadata.requires(name) or []:
        need = Requirement(line)
        if need.name.lower() not in found and (not need.marker or need.marker.evaluate({"extra": ""})):
            found.add(need.name.lower())
            needed(need.name, found)
    return found

installed = {"nnilite", *needed("nnilite", set())}

class OnlyThose:
    owners = metadata.packages_distributions()
    def find_spec(self, name, path=None, target=None):
        owners = {owner.lower().replace("_", "-") for owner in self.owners.get(name.split(".")[0], ())}
        if owners and not owners & {one.replace("_", "-") for one in installed}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, OnlyThose())
import nnilite
failed = {}
for found in pkgutil.walk_packages(nnilite.__path__, "nnilite.", onerror=lambda name: None):
    if "_nni_shim" in found.name or found.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        failed.setdefault(found.name.split(".")[1], set()).add(error.name.split(".")[0])
print(failed)
"""

NEED_AN_EXTRA = {"platform_http", "_webhooks", "ssh", "integrations", "testing"}


def test_commands_and_manager_need_no_extra() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    failed = ast.literal_eval(done.stdout)
    assert failed["platform_http"] == {"requests"}  # so the program does leave out what the extras bring
    assert {room: lacking for room, lacking in failed.items() if room not in NEED_AN_EXTRA} == {}
