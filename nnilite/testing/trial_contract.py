"""Tests of what a trial finds when a training service starts it, and of what it reports. `ServiceContract` has them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nnilite.records import MetricKind
from nnilite.service import JobState
from nnilite.testing._programs import IMPORT, LIST, REPORT_ENVIRONMENT, SOIL
from nnilite.testing.bench import ServiceBench
from nnilite.testing.probes import quoted


class TrialContract:
    """Requirements on a training service that trials see: variables, code, parameters, and metrics that arrive once."""

    own_copy = True  # trials run in a copy of the code
    same_machine = True  # trials run on this machine, under this user
    ends_alone = True  # a job ends even if the manager is not running to take what it has reported
    most_characters = 500_000  # most characters of a trial's parameters, which a platform may limit

    # what a trial finds

    def test_the_documented_variables_are_there(self, bench: ServiceBench) -> None:
        name = bench.python(REPORT_ENVIRONMENT)
        [report] = bench.finish(name).values
        job = bench.received(name)
        env = report["env"]
        assert env["NNI_PLATFORM"] == "local"
        assert env["NNILITE_ATTEMPT"] == "0"
        assert name == f"nni-{env['NNI_EXP_ID']}-{env['NNI_TRIAL_JOB_ID']}-0"
        assert env["NNI_CODE_DIR"] == report["cwd"]
        assert {"NNI_TRIAL_SEQ_ID", "NNI_SYS_DIR", "NNI_OUTPUT_DIR"} <= set(env)
        assert job.token not in json.dumps(report)

    def test_the_output_folder_can_be_written_and_is_the_trials_own(self, bench: ServiceBench) -> None:
        program = """
import nnilite, os, pathlib
place = pathlib.Path(os.environ["NNI_OUTPUT_DIR"], "model.bin")
found = place.exists()
place.write_bytes(b"x")
nnilite.report_final_result(found)
"""
        names = [bench.python(program) for _ in range(2)]
        assert [bench.finish(name).values for name in names] == [[False], [False]]

    def test_variables_of_the_specification_reach_the_trial(self, bench: ServiceBench) -> None:
        hostile = 'it\'s "$HOME"\n`x` \\ ü'
        name = bench.python(REPORT_ENVIRONMENT, env={"MY_VARIABLE": hostile})
        assert bench.finish(name).values[0]["env"]["MY_VARIABLE"] == hostile

    def test_no_gpus_means_that_none_is_visible(self, bench: ServiceBench) -> None:
        name = bench.python(REPORT_ENVIRONMENT, gpus=0)
        assert bench.finish(name).values[0]["env"].get("CUDA_VISIBLE_DEVICES") == ""

    def test_not_saying_anything_of_gpus_leaves_their_variable_alone(self, bench: ServiceBench) -> None:
        name = bench.python(REPORT_ENVIRONMENT)
        expected = os.environ.get("CUDA_VISIBLE_DEVICES") if self.same_machine else None
        assert bench.finish(name).values[0]["env"].get("CUDA_VISIBLE_DEVICES") == expected

    # code

    def test_the_trial_runs_among_its_code(self, bench: ServiceBench) -> None:
        script = '#!/bin/sh\nexec "$@"\n'
        bench.put_code(**{"a b/c'$d\ne/mod.py": "VALUE = 'found'", "run it.sh": script})
        command = "./run\\ it.sh " + bench.interpreter(IMPORT) + " " + quoted(Path("a b") / "c'$d\ne")
        assert bench.finish(bench.run(command)).values == ["found"]

    def test_what_is_ignored_is_not_sent(self, bench: ServiceBench) -> None:
        if not self.own_copy:
            pytest.skip("trials run in the user's folder")
        ignored = dict.fromkeys(("data/x", "model.ckpt", "sub/model.ckpt"), "x")
        bench.put_code(**ignored, **{"keep.py": "x", ".nniignore": "data/\n*.ckpt\n"})
        assert bench.finish(bench.python(LIST)).values == [[".nniignore", "keep.py"]]

    def test_an_edit_after_the_start_does_not_leak_into_trials(self, bench: ServiceBench) -> None:
        if not self.own_copy:
            pytest.skip("trials run in the user's folder")
        bench.put_code(**{"shared.txt": "old"})
        assert bench.finish(bench.python(SOIL)).values == ["old"]
        (bench.code / "shared.txt").write_text("new")
        assert bench.finish(bench.python(SOIL)).values == ["old"]

    def test_a_trial_can_write_to_its_code_without_harm_to_others(self, bench: ServiceBench) -> None:
        if not self.own_copy:
            pytest.skip("trials run in the user's folder")
        bench.put_code(**{"shared.txt": "clean"})
        names = [bench.python(SOIL) for _ in range(2)]
        assert [bench.finish(name).values for name in names] == [["clean"], ["clean"]]
        assert (bench.code / "shared.txt").read_text() == "clean"

    # parameters

    def test_each_trial_gets_its_own_parameters(self, bench: ServiceBench) -> None:
        program = "import nnilite; nnilite.report_final_result(nnilite.get_next_parameter())"
        given = [{"number": number, "nested": {"_name": "ü'$\n", "x": [number]}} for number in range(2)]
        names = [bench.python(program, parameters=parameters) for parameters in given]
        assert [bench.finish(name).values for name in names] == [[parameters] for parameters in given]

    def test_large_parameters_arrive_whole(self, bench: ServiceBench) -> None:
        program = "import nnilite; nnilite.report_final_result(len(nnilite.get_next_parameter()['x']))"
        assert bench.finish(bench.python(program, parameters={"x": "ü" * self.most_characters})).values == [
            self.most_characters
        ]

    # metrics

    def test_metrics_arrive_once_and_in_order(self, bench: ServiceBench) -> None:
        program = """
import nnilite
for value in (0.1, {"default": 0.2, "loss": [1, 2]}, 0.3):
    nnilite.report_intermediate_result(value)
nnilite.report_final_result(0.4)
"""
        metrics = bench.finish(bench.python(program)).metrics
        assert [kind for kind, _, _ in metrics] == [MetricKind.PERIODICAL] * 3 + [MetricKind.FINAL]
        assert [value for _, _, value in metrics] == [0.1, {"default": 0.2, "loss": [1, 2]}, 0.3, 0.4]

    def test_a_metric_right_before_a_violent_end_arrives(self, bench: ServiceBench) -> None:
        program = "import os, nnilite; nnilite.report_final_result(0.5); os.kill(os.getpid(), 9)"
        assert bench.finish(bench.python(program)).values == [0.5]

    def test_a_large_metric_arrives(self, bench: ServiceBench) -> None:
        program = "import nnilite; nnilite.report_final_result({'default': 1, 'x': 'y' * 900_000})"
        [value] = bench.finish(bench.python(program)).values
        assert len(value["x"]) == 900_000

    def test_many_metrics_of_many_trials_are_not_mixed_up(self, bench: ServiceBench) -> None:
        program = """
import nnilite
number = nnilite.get_next_parameter()["number"]
for step in range(300):
    nnilite.report_intermediate_result(number * 1000 + step)
"""
        names = [bench.python(program, parameters={"number": number}) for number in range(3)]
        for number, name in enumerate(names):
            assert bench.finish(name).values == [number * 1000 + step for step in range(300)]

    def test_metrics_survive_a_manager_that_is_away(self, bench: ServiceBench) -> None:
        if not bench.calls_back:
            pytest.skip("trials report by their logs")
        program = f"""
import nnilite, os, time
nnilite.report_intermediate_result(1)
while not os.path.exists({str(bench.sign("go"))!r}): time.sleep(0.02)
nnilite.report_intermediate_result(2)
nnilite.report_final_result(3)
open({str(bench.sign("done"))!r}, "w").close()
while not os.path.exists({str(bench.sign("end"))!r}): time.sleep(0.02)
"""
        name = bench.python(program)
        bench.eventually(lambda: bench.received(name).values == [1])
        bench.receiver.stop()
        bench.give("go")
        bench.eventually(lambda: bench.given("done"))
        bench.give("end")
        if self.ends_alone:
            bench.wait(name, JobState.SUCCEEDED)
        bench.receiver.start()
        assert bench.finish(name).values == [1, 2, 3]
        assert bench.status(name).state is JobState.SUCCEEDED

    def test_a_lost_answer_doubles_nothing(self, bench: ServiceBench) -> None:
        if not bench.calls_back:
            pytest.skip("trials report by their logs")
        bench.receiver.lose_answers = 3
        program = "import nnilite\nfor n in range(5): nnilite.report_intermediate_result(n)"
        received = bench.finish(bench.python(program))
        assert received.values == [0, 1, 2, 3, 4]
        assert len(received.started) == len(received.exits) == 1

    def test_a_job_with_a_wrong_token_delivers_nothing_and_harms_no_other(self, bench: ServiceBench) -> None:
        if not bench.calls_back:
            pytest.skip("trials report by their logs")
        bad = bench.job("true")
        bench.received(bad.name).token = "another"
        bench.submit(bad)
        good = bench.run("true")
        assert bench.finish(good).refused == 0
        bench.eventually(lambda: bench.received(bad.name).requests)
        assert bench.received(bad.name).exits == []
