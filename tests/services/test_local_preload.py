"""Modules that the local service imports once for all trials."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nnilite.errors import ConfigError, ServiceError
from nnilite.service import ServiceContext
from nnilite.testing import ServiceBench
from nnilite_local import LocalConfig, LocalService

pytestmark = pytest.mark.process

SCRIPT = """import os, pathlib, nnilite
parent = pathlib.Path("/proc/%d/cmdline" % os.getppid()).read_text().split(chr(0))[0]
pathlib.Path(os.environ["NNI_OUTPUT_DIR"], "parent").write_text(parent)
nnilite.report_final_result(nnilite.get_next_parameter()["x"])
"""
COMMAND = f"{sys.executable} trial.py"


def maker(config: LocalConfig, command: str = COMMAND) -> Callable[[ServiceContext], LocalService]:
    return lambda context: LocalService("local", config, replace(context, defaults={"trialCommand": command}))


@pytest.mark.parametrize("isolated", [False, True])
def test_trials_start_as_forks_of_a_preloader(tmp_path: Path, isolated: bool) -> None:
    bench = ServiceBench(tmp_path, maker(LocalConfig(preload=["json"], isolate_code=isolated)))
    (bench.code / "trial.py").write_text(SCRIPT)
    with bench:
        for x in range(2):
            job = bench.run(COMMAND, parameters={"x": x})
            assert bench.finish(job).values == [x]
            folder = bench.service.folder(bench.handles[job])
            assert folder is not None
            assert (folder / "parent").read_text() == "nnilite preloader:"


@pytest.mark.parametrize("command", [COMMAND, "./trial.sh"])
def test_what_cannot_be_preloaded_is_refused_before_anything_starts(tmp_path: Path, command: str) -> None:
    said = "no_such_module cannot be imported" if command == COMMAND else "does not simply start Python"
    with ServiceBench(tmp_path, maker(LocalConfig())) as bench:
        service = maker(LocalConfig(preload=["no_such_module"]), command)(bench.context())
        with pytest.raises(ConfigError, match=said) as caught:
            bench.call(service.open())
        assert caught.value.place.field == "preload"
        bench.call(service.close())


def test_it_does_not_go_with_distributed_trials(tmp_path: Path) -> None:
    with ServiceBench(tmp_path, maker(LocalConfig())) as bench:
        defaults = {"trialCommand": COMMAND, "distributed": {"nodes": 1, "processesPerNode": 2, "launcher": "torch"}}
        service = LocalService("local", LocalConfig(preload=["json"]), replace(bench.context(), defaults=defaults))
        for check in (service.check_for_dry_run, service.open):
            with pytest.raises(ConfigError, match="has no effect on distributed trials") as caught:
                bench.call(check())
            assert caught.value.place.field == "preload"
        bench.call(service.close())


def test_a_dry_run_imports_what_is_to_be_preloaded_and_says_what_is_missing(tmp_path: Path) -> None:
    with ServiceBench(tmp_path, maker(LocalConfig())) as bench:
        good = maker(LocalConfig(preload=["json"]))(bench.context())
        bench.call(good.check_for_dry_run())
        bad = maker(LocalConfig(preload=["json", "no_such_module"]))(bench.context())
        with pytest.raises(ServiceError, match=r"preload: no_such_module cannot be imported by .*; install what is"):
            bench.call(bad.check_for_dry_run())


@pytest.mark.parametrize("name", ["scikit-learn", "", "a b", "torch.", "ü"])
def test_what_is_no_name_of_a_module_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a module; write it as in `import sklearn`"):
        LocalConfig(preload=[name])
