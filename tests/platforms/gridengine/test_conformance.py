"""The conformance suite on a real Grid Engine, whose only node is this machine."""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from platforms.contract_cases import KIND_MATTERS
from platforms.folder_bench import FolderBench


@pytest.mark.real
@pytest.mark.timeout(180)
class TestBatchServiceOnGridEngine(ServiceContract):
    every_case = False
    # The way into a job and what is kept of it are those of Slurm, where all cases run. Here are those of the commands.
    matters = KIND_MATTERS - {
        "test_a_dry_run_is_json_and_shows_no_token",
        "test_a_job_that_ignores_sigterm_is_killed_after_the_grace",
        "test_closing_is_quick_and_leaves_jobs_running",
        "test_each_trial_gets_its_own_parameters",
        "test_removing_an_ended_job_leaves_no_token_behind",
        # Jobs are found again by their names, as after a lost answer, and canceled in one way.
        "test_submitting_the_same_name_twice_starts_it_once",
        "test_submitting_again_after_a_restart_finds_the_running_job",
        "test_canceling_twice_or_after_the_end_is_harmless",
        "test_canceling_one_job_leaves_the_others_alone",
        "test_no_gpus_means_that_none_is_visible",
    }

    @pytest.fixture
    def make_service(self, maker):
        return maker()


@pytest.mark.real
@pytest.mark.long
@pytest.mark.timeout(180)
class TestBatchServiceByFolders(ServiceContract):
    @pytest.fixture
    def bench(self, tmp_path, maker):
        with FolderBench(tmp_path, maker(nni_manager_ip=None), report="stdout") as bench:
            yield bench
