"""The trial SDK, as trial code sees it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import math
import os
import subprocess
import sys
import threading
import traceback
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import pytest

import nnilite
from interrupts import is_interrupted_at
from keeper_bench import HOSTILE, pythons
from nnilite._keeper import SHIM, sdk_sources
from nnilite.services import keeper_folder
from nnilite.tuner import EXTRAS

PARAMETERS = {"lr": 0.1, "layers": [{"_name": "dense", "n": 3}]}


@pytest.fixture
def sdk():
    """A fresh copy of the module, since it remembers its trial."""
    spec = importlib.util.spec_from_file_location("nnilite_of_a_trial", nnilite.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """The folder of a trial, with the environment that a keeper sets."""
    folder = tmp_path / HOSTILE
    (folder / ".nni").mkdir(parents=True)
    (folder / "parameter.cfg").write_text(json.dumps({"parameter_id": 4, "parameters": PARAMETERS}))
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    return folder


def environment(folder):
    return {
        "NNI_PLATFORM": "local",
        "NNI_SYS_DIR": str(folder),
        "NNI_OUTPUT_DIR": str(folder),
        "NNI_EXP_ID": "exp",
        "NNI_TRIAL_JOB_ID": "Xy12z",
        "NNI_TRIAL_SEQ_ID": "12",
        "NNILITE_METRICS": f"{folder}/.nni/metrics",
    }


def values(folder):
    return [metric.value for metric in keeper_folder.read_metrics(folder)]


def test_parameters_are_those_of_the_trial_each_time(sdk, trial):
    assert sdk.get_current_parameter() is None
    assert sdk.get_next_parameter() == PARAMETERS
    assert sdk.get_next_parameters() == PARAMETERS
    assert sdk.get_current_parameter("lr") == 0.1
    with pytest.raises(KeyError):
        sdk.get_current_parameter("no such")


def test_ids_are_those_of_the_trial(sdk, trial):
    assert (sdk.get_experiment_id(), sdk.get_trial_id(), sdk.get_sequence_id()) == ("exp", "Xy12z", 12)


def test_a_report_is_a_line_as_nni_writes_it(sdk, trial):
    sdk.get_next_parameter()
    sdk.report_intermediate_result(0.25)
    line = (trial / ".nni" / "metrics").read_bytes()
    record = json.loads(line[8:])
    assert int(line[2:8]) == len(line[8:])
    assert record.pop("time") > 1e9
    assert record == {
        "parameter_id": 4,
        "trial_job_id": "Xy12z",
        "type": "PERIODICAL",
        "sequence": 0,
        "value": "0.25",
    }


def test_reporting_before_asking_for_parameters_is_fine(sdk, trial):
    sdk.report_final_result(1)
    assert values(trial) == [1]


@pytest.mark.parametrize("metric", [1, 0.5, True, {"default": 1, "more": {"x": [1, None, "é\ud800"]}}])
def test_metrics_arrive_as_they_were(sdk, trial, metric):
    sdk.report_final_result(metric)
    arrived = json.loads(json.dumps(metric).replace("\\ud800", "?"))  # of half a character nothing can be made
    assert values(trial) == [arrived]


def test_nan_and_infinity_are_recorded(sdk, trial):
    for metric in (math.nan, math.inf, -math.inf):
        sdk.report_intermediate_result(metric)
    assert list(map(repr, values(trial))) == ["nan", "inf", "-inf"]


def test_a_program_that_clears_its_environment_still_reports(sdk, trial, monkeypatch):
    sdk.get_next_parameter()
    for name in environment(trial):
        monkeypatch.delenv(name)
    sdk.report_final_result(0.5)
    assert values(trial) == [0.5]
    assert sdk.get_trial_id() == "Xy12z"


def test_a_rank_that_clears_its_environment_does_not_report(sdk, trial, monkeypatch):
    monkeypatch.setenv("NNILITE_WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    sdk.get_next_parameter()
    for name in (*environment(trial), "NNILITE_WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name)
    with pytest.warns(RuntimeWarning, match="rank 1"):
        sdk.report_final_result(0.5)
    assert not (trial / ".nni" / "metrics").exists()


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({"RANK": "5", "LOCAL_RANK": "1"}, "5"),
        ({"LOCAL_RANK": "1"}, "1"),
        ({"OMPI_COMM_WORLD_RANK": "2"}, "2"),
        ({"RANK": "0", "LOCAL_RANK": "0"}, ""),
        ({"RANK": "3"}, ""),  # of a pod: the platform has started the trial as a whole
    ],
)
def test_a_rank_of_a_launcher_in_the_command_reports_and_warns(sdk, trial, monkeypatch, variables, rank):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    says = pytest.warns(RuntimeWarning, match=f"rank {rank} reports, too") if rank else contextlib.nullcontext()
    with says as found:
        sdk.report_intermediate_result(0.25)
        sdk.report_final_result(0.5)
    assert values(trial) == [0.25, 0.5]
    assert len(found or [0]) == 1


def test_numpy_values_become_plain_numbers(sdk, trial):
    numpy = pytest.importorskip("numpy")
    kinds = (numpy.float64, numpy.float32, numpy.float16, numpy.longdouble, numpy.int64, numpy.uint8, numpy.bool_)
    for kind in kinds:
        sdk.report_intermediate_result(kind(1))
    sdk.report_final_result({"default": numpy.float32(0.5), "each": numpy.arange(3), "cell": numpy.array(2)})
    assert values(trial) == [1] * len(kinds) + [{"default": 0.5, "each": [0, 1, 2], "cell": 2}]


def test_what_is_not_json_is_refused_with_a_sentence(sdk, trial):
    loop = {"default": 1}
    loop["loop"] = loop
    for metric in (object(), {"default": 1j}, {(1, 2): 3}, {1, 2}, b"x", loop, 10**5000):
        with pytest.raises(TypeError, match="a metric must be a number, or a dict of JSON values"):
            sdk.report_final_result(metric)
    assert not (trial / ".nni" / "metrics").exists()


def test_the_traceback_of_a_refused_metric_has_only_one_error(sdk, trial):
    with pytest.raises(TypeError) as refused:
        sdk.report_final_result({"default": {1, 2}})
    said = "".join(traceback.format_exception(refused.type, refused.value, refused.tb))
    assert said.count("Error:") == said.count("Traceback") == 1


def test_a_metric_of_a_megabyte_is_refused_and_one_below_is_not(sdk, trial):
    with pytest.raises(ValueError, match=r"less than 1,000,000 bytes as JSON, and this one has 1,000,\d\d\d"):
        sdk.report_final_result({"default": 1, "x": "x" * 999_900})
    sdk.report_final_result({"default": 1, "x": "x" * 999_800})
    assert len(values(trial)) == 1


class Tensor:
    """A tensor of TensorFlow, which has neither `item` nor `tolist`."""

    def __init__(self, array):
        self.ndim, self.numpy = array.ndim, lambda: array


class Frame:
    """A table of one cell, as in pandas."""

    shape, ndim = (1, 1), 2

    def to_numpy(self):
        return [[0.5]]


HALVES = {
    "complex number without an imaginary part": lambda numpy: numpy.complex64(0.5),
    "masked array without a masked value": lambda numpy: numpy.ma.array([0.5]),
    "table": lambda numpy: Frame(),
    "array without dimensions": lambda numpy: numpy.array(0.5),
    "array of one": lambda numpy: numpy.array([0.5]),
    "matrix of one": lambda numpy: numpy.array([[0.5]]),
    "tensor": lambda numpy: Tensor(numpy.array([0.5])),
    "tuple of one": lambda numpy: (numpy.float32(0.5),),
    "list of one text": lambda numpy: ["0.5"],
    "text": lambda numpy: " 5e-1",
    "decimal": lambda numpy: Decimal("0.5"),
    "fraction": lambda numpy: Fraction(1, 2),
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
def test_what_is_plainly_one_number_is_that_number(sdk, trial, half):
    value = half(pytest.importorskip("numpy"))
    sdk.report_intermediate_result({"default": value})
    sdk.report_final_result(value)
    assert values(trial) == [{"default": 0.5}, 0.5]


def test_other_numbers_of_a_dict_may_be_arrays_of_one_element_and_its_texts_stay(sdk, trial):
    numpy = pytest.importorskip("numpy")
    sdk.report_final_result({"default": 1, "loss": numpy.array([0.25]), "note": "5", "sizes": [3]})
    assert values(trial) == [{"default": 1, "loss": 0.25, "note": "5", "sizes": [3]}]


def test_a_number_counts_beside_entries_that_json_does_not_have(sdk, trial):
    numpy = pytest.importorskip("numpy")
    odd = {numpy.int64(3): 1, "path": Path("a"), "all": {"when": {1}, "loss": numpy.float32(1)}, "many": [1, b"x"]}
    with pytest.warns(RuntimeWarning, match="which are kept as text: np.int64.3., 'path', 'all', 'many'"):
        sdk.report_final_result({"default": numpy.array([0.5]), **odd})
    kept = {"3": 1, "path": "a", "all": {"when": "{1}", "loss": 1.0}, "many": [1, "b'x'"]}
    assert values(trial) == [{"default": 0.5, **kept}]


def test_any_mapping_is_a_dict(sdk, trial):
    sdk.report_final_result(MappingProxyType({"default": "0.5"}))
    assert values(trial) == [{"default": 0.5}]


def test_what_numpy_has_masked_is_no_number(sdk, trial):
    numpy = pytest.importorskip("numpy")
    with pytest.warns(RuntimeWarning, match="is not a number"):
        sdk.report_intermediate_result(numpy.ma.masked)
    sdk.report_final_result({"default": numpy.ma.array([0.5], mask=[True])})
    assert values(trial) == [None, {"default": [None]}]


def test_an_array_of_several_numbers_is_recorded_with_a_warning(sdk, trial):
    numpy = pytest.importorskip("numpy")
    with pytest.warns(RuntimeWarning, match="is not a number, so the tuner cannot use it"):
        sdk.report_final_result({"default": numpy.array([1, 2])})
    assert values(trial) == [{"default": [1, 2]}]


@pytest.mark.parametrize("metric", [math.nan, {"default": -math.inf}])
def test_a_final_result_that_is_not_finite_is_warned_of(sdk, trial, metric):
    with pytest.warns(RuntimeWarning, match="the final result is not a finite number"):
        sdk.report_final_result(metric)


@pytest.mark.parametrize(
    "metric", [{"accuracy": 1}, "half", "nan", [1, 2], [], ["half"], None, {"default": None}, {"default": {}}]
)
def test_a_metric_without_a_number_is_warned_of_once_and_recorded(sdk, trial, metric):
    with pytest.warns(RuntimeWarning, match="number") as caught:
        sdk.report_intermediate_result(metric)
    sdk.report_intermediate_result(metric)  # a second warning would be an error
    assert Path(caught[0].filename) == Path(__file__)
    assert values(trial) == [metric, metric]


def test_no_warning_ends_a_program_that_makes_errors_of_them(sdk, trial, capsys):
    # As all warnings are errors in tests, this one would be.
    sdk.report_final_result({"accuracy": 1})
    assert values(trial) == [{"accuracy": 1}]
    assert "nnilite: a reported dict has no 'default'" in capsys.readouterr().err


def test_a_second_final_result_is_warned_of_and_recorded(sdk, trial):
    sdk.report_final_result(1)
    with pytest.warns(RuntimeWarning, match="the first one counts"):
        sdk.report_final_result(2)
    assert values(trial) == [1, 2]


def test_a_full_disk_is_an_error_with_a_sentence(sdk, trial, monkeypatch):
    monkeypatch.setenv("NNILITE_METRICS", "/dev/full")
    with pytest.raises(OSError, match="the metric is not recorded: No space left on device"):
        sdk.report_final_result(1)


def test_missing_parameters_are_an_error_with_a_sentence(sdk, trial, monkeypatch):
    (trial / "parameter.cfg").unlink()
    monkeypatch.setattr(sdk, "_PARAMETERS_WAIT_S", 0.01)
    with pytest.raises(RuntimeError, match=r"(?s)parameters of this trial cannot be read from .*parameter\.cfg"):
        sdk.get_next_parameter()


def test_threads_can_report_at_once(sdk, trial):
    def report(number):
        for step in range(100):
            sdk.report_intermediate_result({"default": step, "thread": number})

    threads = [threading.Thread(target=report, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (trial / ".nni" / "metrics").read_bytes().splitlines()
    assert sorted(json.loads(line[8:])["sequence"] for line in lines) == list(range(800))


REPORT_MUCH = """
import sys, nnilite
for step in range(100):
    value = {"default": step, "process": int(sys.argv[1]), "x": "x" * (step * 997 % 70000)}
    nnilite.report_intermediate_result(value)
"""


@pytest.mark.process
def test_processes_can_report_at_once(trial):
    processes = [subprocess.Popen([sys.executable, "-c", REPORT_MUCH, str(number)]) for number in range(4)]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
    seen = [(value["process"], value["default"]) for value in values(trial)]
    assert sorted(seen) == [(number, step) for number in range(4) for step in range(100)]


def test_without_a_manager_there_are_no_parameters_and_one_warning(sdk, monkeypatch):
    monkeypatch.delenv("NNI_PLATFORM", raising=False)
    with pytest.warns(RuntimeWarning, match="no nnilite manager runs this trial") as caught:
        assert sdk.get_next_parameter() == {}
    assert sdk.get_next_parameter() == {}  # a second warning would be an error
    assert Path(caught[0].filename) == Path(__file__)
    assert (sdk.get_experiment_id(), sdk.get_trial_id(), sdk.get_sequence_id()) == ("STANDALONE", "STANDALONE", 0)


def test_without_a_manager_results_are_logged(sdk, monkeypatch, caplog):
    monkeypatch.delenv("NNI_PLATFORM", raising=False)
    with caplog.at_level(logging.INFO):
        sdk.report_intermediate_result(0.5)
        sdk.report_intermediate_result(0.6)
        sdk.report_final_result({"default": 1})
    assert caplog.messages == [
        "Intermediate result: 0.5  (Index 0)",
        "Intermediate result: 0.6  (Index 1)",
        'Final result: {"default": 1}',
    ]


@pytest.mark.process
def test_a_standalone_program_prints_its_results():
    program = "import nnilite; nnilite.report_final_result(0.5)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=bare_environment())
    assert done.stdout.endswith("] Final result: 0.5\n")


def bare_environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NNI")}
    return {**kept, **more}


def test_checkpoints_have_a_folder(sdk, trial, monkeypatch, tmp_path):
    assert sdk.checkpoint_dir() == trial / "checkpoint"
    monkeypatch.setenv("NNILITE_CHECKPOINT_DIR", str(tmp_path / "kept" / HOSTILE))
    assert sdk.checkpoint_dir() == tmp_path / "kept" / HOSTILE
    assert sdk.checkpoint_dir().is_dir()


def test_checkpoints_have_a_folder_without_a_manager(sdk, monkeypatch):
    monkeypatch.delenv("NNI_PLATFORM", raising=False)
    assert sdk.checkpoint_dir() == sdk.checkpoint_dir()
    sdk.checkpoint_dir().rmdir()


def interrupted(sdk, name):
    with sdk.checkpoint(name) as path:
        path.write_text("half of tw")
        raise ZeroDivisionError


def test_a_checkpoint_is_written_whole_or_not_at_all(sdk, trial):
    with sdk.checkpoint("model.txt") as path:
        path.write_text("one")
        assert not (trial / "checkpoint" / "model.txt").exists()
    with pytest.raises(ZeroDivisionError):
        interrupted(sdk, "model.txt")
    assert [file.read_text() for file in (trial / "checkpoint").iterdir()] == ["one"]


def test_a_signal_handler_may_save_the_checkpoint_that_is_being_written(sdk, trial):
    with sdk.checkpoint("model.txt") as path, path.open("w") as file:
        file.write("of the program, begun before")
        with sdk.checkpoint("model.txt") as other:
            other.write_text("of the handler")
        assert (trial / "checkpoint" / "model.txt").read_text() == "of the handler"
    assert [file.read_text() for file in (trial / "checkpoint").iterdir()] == ["of the program, begun before"]


def test_what_a_killed_attempt_was_writing_is_removed_by_the_next_one(sdk, trial, monkeypatch):
    others = {"model.txt", ".of-the-user.new"}
    for attempt in ("1", "2"):
        monkeypatch.setenv("NNILITE_ATTEMPT", attempt)
        killed = sdk.checkpoint("model.txt")
        killed.__enter__().write_text("half of tw")
    for name in others:
        (trial / "checkpoint" / name).write_text("whole")
    with sdk.checkpoint("state.txt") as path:
        path.write_text("whole")
        left = {path.name for path in (trial / "checkpoint").iterdir()} - others
        assert left == {killed.__enter__().name, path.name}  # of this attempt, whose other processes may be at work


def test_a_folder_may_be_a_checkpoint_but_replaces_none(sdk, trial):
    def save(name, content, error=None):
        with sdk.checkpoint(name) as path:
            path.mkdir()
            (path / "weights").write_text(content)
            if error is not None:
                raise error

    save("epoch-1", "one")
    with pytest.raises(OSError, match="give each one its own name"):
        save("epoch-1", "two")
    with pytest.raises(ZeroDivisionError):
        save("epoch-2", "half of tw", ZeroDivisionError())
    assert [file.name for file in (trial / "checkpoint").iterdir()] == ["epoch-1"]
    assert (trial / "checkpoint" / "epoch-1" / "weights").read_text() == "one"


def test_a_signal_handler_may_report_whatever_the_program_is_doing(sdk, trial):
    reported = []

    def handle():
        reported.append(len(reported) + 1)
        sdk.report_intermediate_result(reported[-1])

    def interrupt_everywhere():
        while is_interrupted_at(len(reported) + 1, handle, lambda: sdk.report_intermediate_result(0)):
            pass

    # In a thread, so that a lock that is never released fails the test instead of stopping it.
    thread = threading.Thread(target=interrupt_everywhere, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), f"stopped at report {len(reported)}"
    assert len(reported) > 30
    assert [value for value in values(trial) if value] == reported


def test_a_checkpoint_is_named_once_it_and_the_reports_before_it_are_on_the_disk(sdk, trial, monkeypatch):
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink())))
    monkeypatch.setattr(Path, "replace", lambda draft, target: synced.append(str(target)))
    sdk.report_intermediate_result(0.5)
    with sdk.checkpoint("step") as path:
        path.write_text("1")
    assert synced == [str(path), str(trial / ".nni" / "metrics"), str(trial / "checkpoint" / "step")]


@pytest.mark.process
def test_importing_the_sdk_loads_next_to_nothing():
    program = "import sys; before = set(sys.modules); import nnilite; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.split()
    assert set(loaded) <= {"nnilite", "__future__"}


# The SDK alone, as the keeper puts it on PYTHONPATH


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdk") / HOSTILE.replace(":", "")
    for name, data in sdk_sources().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def run_alone(alone, program, python=sys.executable, **environment):
    return subprocess.run(
        [python, "-Wdefault", "-c", program],
        capture_output=True,
        text=True,
        env=bare_environment(PYTHONPATH=str(alone), **environment),
        cwd="/",
    )


USE = """
import sys, nnilite as n
n.report_final_result({"default": n.get_next_parameter()["lr"]})
print("json" in sys.modules, "re" in sys.modules)
"""


@pytest.mark.process
def test_parameters_and_reports_need_no_json_module(alone, trial):
    env = {**os.environ, **environment(trial), "PYTHONPATH": str(alone)}
    done = subprocess.run([sys.executable, "-S", "-c", USE], env=env, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]
    assert values(trial) == [{"default": 0.1}]


@pytest.mark.process
@pytest.mark.parametrize("python", pythons(), ids=lambda path: path.split("/")[-3])
def test_the_sdk_alone_serves_every_python(alone, trial, python):
    program = (
        "import nnilite as n; n.get_next_parameter(); n.report_intermediate_result(float('nan')); print(n.__version__)"
    )
    done = run_alone(alone, program, python, **environment(trial))
    assert (done.stdout.strip(), done.stderr) == (nnilite.__version__, "")
    assert len(values(trial)) == 1


@pytest.mark.process
def test_an_installed_nnilite_lends_the_sdk_the_rest(alone):
    program = (
        "import nnilite, nnilite.space; from nnilite import Search, Tuner; print(nnilite.__file__, Tuner.__module__)"
    )
    done = run_alone(alone, program)
    assert done.stdout.startswith(str(alone))
    assert done.stdout.strip().endswith("nnilite.tuner")


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "name"), [("from nnilite import Search", "Search"), ("import nni.experiment.config", "Experiment")]
)
def test_without_it_the_rest_says_what_to_install(alone, program, name):
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        env=bare_environment(PYTHONPATH=str(alone)),
        cwd="/",
    )
    assert f"ImportError: nnilite.{name} needs the whole package" in done.stderr
    assert "pip install nnilite" in done.stderr


def test_unknown_names_are_ordinary_attribute_errors():
    with pytest.raises(AttributeError, match="module 'nnilite' has no attribute 'report'"):
        nnilite.report  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'choice'; write nnilite\.space\."):
        nnilite.choice  # noqa: B018


@pytest.mark.process
def test_modules_are_there_without_an_import_of_their_own():
    program = "import nnilite as n; print(n.space.uniform(0, 1), n.plot.history.__name__, 'sys' in dir(n.space))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "{'_type': 'uniform', '_value': [0, 1]} history False\n", done.stderr


def test_every_public_name_is_there():
    assert set(nnilite.__all__) <= set(dir(nnilite))
    assert nnilite.NoMoreTrialError.__module__ == "nnilite.errors"


# `import nni`


@pytest.mark.process
def test_nni_has_the_calls_of_trial_code(alone, trial):
    program = (
        "import nni, nni.trial\n"
        "from nni.utils import merge_parameter\n"
        "print(merge_parameter({'lr': 1.0, 'layers': [], 'b': 2}, nni.get_next_parameter()))\n"
        "nni.report_intermediate_result(1); nni.trial.report_final_result(2)\n"
        "print(nni.get_trial_id(), nni.get_current_parameter('lr'), nni.__version__)"
    )
    done = run_alone(alone, program, **environment(trial))
    assert done.stdout.splitlines()[1:] == ["Xy12z 0.1 3.0+nnilite"]
    assert values(trial) == [1, 2]


@pytest.mark.process
def test_nni_has_the_bases_of_tuners_where_nnilite_is_installed(alone):
    program = (
        "import nni, nnilite\nfrom nni.tuner import Tuner\nfrom nni.assessor import Assessor, AssessResult\n"
        "assert nni.NoMoreTrialError is nnilite.NoMoreTrialError\nassert issubclass(Tuner, nnilite.Tuner)\n"
        "assert nni.utils.OptimizeMode('maximize') is nni.utils.OptimizeMode.Maximize\n"
        "assert nni.utils.extract_scalar_reward({'default': 2}) == 2\n"
        "validator = nni.ClassArgsValidator()\n"
        "assert validator.range('size', int, 1, 9).validate(5) == validator.choices('size', 4, 5).validate(5)\n"
    )
    assert run_alone(alone, program).stderr == ""


@pytest.mark.process
def test_what_nni_has_and_we_do_not_says_what_to_do(alone):
    done = run_alone(alone, "import nni; nni.retiarii")
    assert "nni.retiarii is not among the parts of NNI that nnilite offers" in done.stderr
    assert "NNILITE_REAL_NNI=1" in done.stderr
    done = run_alone(alone, "from nni.nas.space import ModelSpace")
    assert "ModuleNotFoundError: nni.nas is not among the parts of NNI that nnilite offers" in done.stderr


@pytest.mark.process
def test_programs_that_launch_experiments_find_nni_s_classes(alone):
    program = (
        "from nni.experiment import Experiment, ExperimentConfig, LocalConfig, RunMode, RemoteConfig\n"
        "from nni.experiment.config import AlgorithmConfig, RemoteMachineConfig\n"
        "config = ExperimentConfig('remote', trial_command='x', trial_concurrency=1, search_space={'x': {'_type':\n"
        "    'choice', '_value': [1]}}, tuner=AlgorithmConfig(name='Random'))\n"
        "machine = RemoteMachineConfig(host='h')\n"
        "machine.user = 'me'\n"
        "config.training_service = [LocalConfig(trial_gpu_number=0), RemoteConfig(machine_list=[machine])]\n"
        "print(*(part.config for part in config.checked().services))"
    )
    done = run_alone(alone, program)
    assert done.stderr == ""
    assert "host='h', " in done.stdout


@pytest.mark.process
def test_a_program_for_nni_runs_by_hand(tmp_path):
    (tmp_path / "trial.py").write_text("import nni, sys\nprint(sys.argv[1:], __name__, nni.get_trial_id())")
    command = [sys.executable, "-m", "nnilite", "trial.py", "--epochs", "3"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=bare_environment())
    assert (done.stdout, done.stderr) == ("['--epochs', '3'] __main__ STANDALONE\n", "")


@pytest.mark.process
def test_a_command_of_nnictl_in_the_place_of_a_program_is_run(tmp_path):
    def ran(*words):
        command = [sys.executable, "-m", "nnilite", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=bare_environment())
        return done.returncode, done.stdout + done.stderr

    assert ran("platform", "list")[1].startswith("PLATFORM")
    assert ran("create", "gone.yaml")[0] == 1
    assert "`nnictl --help` lists the commands" in ran("--help")[1]
    assert ran("-c", "import nni; print(nni.__name__)") == (0, "nni\n")
    (tmp_path / "create").write_text("print('a program of this name')")
    assert ran("create") == (0, "a program of this name\n")


@pytest.mark.process
def test_the_real_nni_can_be_asked_for(alone, tmp_path):
    (tmp_path / "site" / "nni").mkdir(parents=True)
    (tmp_path / "site" / "nni" / "__init__.py").write_text("from nni.deep import depth\n")
    (tmp_path / "site" / "nni" / "deep.py").write_text("depth = 3\n")
    program = f"import sys; sys.path.append({str(tmp_path / 'site')!r}); import nni; print(nni.depth, nni.__file__)"
    program = f"import sys; sys.path.insert(0, {str(SHIM)!r}); {program}"  # as below `python -m nnilite`
    done = run_alone(alone, program, NNILITE_REAL_NNI="1")
    assert done.stdout == f"3 {tmp_path}/site/nni/__init__.py\n"


def test_merging_parameters_checks_names_and_types():
    sys.path.append(str(Path(nnilite.__file__).parent / "_nni_shim"))
    try:
        from nni.utils import merge_parameter
    finally:
        sys.path.pop()
    base = type("Arguments", (), {})()
    base.lr, base.name, base.free = 0.1, "a", None
    assert merge_parameter(base, {"lr": 1, "free": "x"}) is base
    assert (base.lr, base.free, type(base.lr)) == (1.0, "x", float)
    base.hidden, base.dropout, base.bias = 8, 0.5, True
    merge_parameter(base, {"hidden": 160.0, "dropout": 0, "bias": 0})
    assert [repr(one) for one in (base.hidden, base.dropout, base.bias)] == ["160", "0.0", "False"]
    with pytest.raises(ValueError, match=r"'hidden' is 160.5, of type float; the argument is of type int: use randint"):
        merge_parameter(base, {"hidden": 160.5})
    with pytest.raises(ValueError, match="'momentum' is not among the arguments"):
        merge_parameter(base, {"momentum": 1})
    with pytest.raises(
        ValueError, match=r"; the tuner adds it, .*: add an argument TRIAL_BUDGET, the number of epochs"
    ):
        merge_parameter(base, {"TRIAL_BUDGET": 1})
    base.batch_size = 3
    with pytest.raises(ValueError, match=r"'batch-size' is not among .*; write 'batch_size' in the search"):
        merge_parameter(base, {"batch-size": 1})
    with pytest.raises(ValueError, match="'3', of type str; the argument is of type int: remove the quotes"):
        merge_parameter(base, {"hidden": "3"})
    with pytest.raises(ValueError, match="None, of type NoneType; the argument is of type int: remove null"):
        merge_parameter(base, {"hidden": None})
    with pytest.raises(ValueError, match="'name' is 3, of type int; the argument is of type str: give the argument"):
        merge_parameter(base, {"name": 3})
    with pytest.raises(ValueError, match="the argument is of type bool: choose between true and false"):
        merge_parameter(base, {"bias": 0.5})


def test_merging_parameters_explains_all_that_tuners_add(monkeypatch):
    monkeypatch.syspath_prepend(Path(nnilite.__file__).parent / "_nni_shim")
    utils = importlib.import_module("nni.utils")
    assert utils._OF_TUNER.keys() == EXTRAS


def test_merging_parameters_takes_what_differs_in_form_alone():
    numpy = pytest.importorskip("numpy")
    sys.path.append(str(Path(nnilite.__file__).parent / "_nni_shim"))
    try:
        from nni.utils import merge_parameter
    finally:
        sys.path.pop()
    given = {"shape": (1, 1), "width": numpy.int64(1), "rate": numpy.float32(1)}
    merged = merge_parameter(given, {"shape": [2, 3], "width": 8, "rate": 0.1})
    assert (merged["shape"], merged["width"], type(merged["width"])) == ((2, 3), 8, numpy.int64)
    assert merged["rate"] == numpy.float32(0.1)
    with pytest.raises(ValueError, match="the argument is of type int64"):
        merge_parameter(given, {"width": 8.5})
