"""Which cases of the contracts of all services run every day.

What runs inside of a job is the same on most platforms: the bootstrap, the keeper, the code and the reports. A class of
the contract whose `every_case` is false runs every day only what its platform can break by itself, and all cases with
the long tests. Of each way into a job one class has `every_case`: the fork server (local), an agent on a host (SSH),
the bootstrap in a job of its own (a Kubernetes Job), and a script on a shared folder (Slurm).
"""

from __future__ import annotations

import pytest

from nnilite.testing import BatchContract, ServiceContract

KIND_MATTERS = {
    "test_a_job_runs_once_and_its_end_is_told",
    "test_the_exit_code_is_told",
    "test_each_trial_gets_its_own_parameters",
    "test_a_canceled_job_ends_as_canceled",
    "test_canceling_one_job_leaves_the_others_alone",
    "test_canceling_twice_or_after_the_end_is_harmless",
    "test_canceling_right_after_submitting_works",
    "test_a_job_that_ignores_sigterm_is_killed_after_the_grace",
    "test_a_restarted_manager_finds_its_jobs",
    "test_a_job_that_ended_while_no_manager_was_there_has_its_exit_code",
    "test_submitting_the_same_name_twice_starts_it_once",
    "test_submitting_again_after_a_restart_finds_the_running_job",
    "test_a_lost_answer_doubles_nothing",
    "test_an_unknown_job_is_lost",
    "test_removing_an_ended_job_leaves_no_token_behind",
    "test_start_and_end_of_an_ended_job_are_told",
    "test_statuses_come_in_the_order_of_the_handles",
    "test_closing_is_quick_and_leaves_jobs_running",
    "test_a_dry_run_is_json_and_shows_no_token",
    "test_no_gpus_means_that_none_is_visible",
}
"""The cases that a kind of object can break by itself: what it is made of, and how its end is read."""

ALIKE_IN_A_CLUSTER = {
    "test_a_job_that_ignores_sigterm_is_killed_after_the_grace",
    "test_canceling_one_job_leaves_the_others_alone",
    "test_closing_is_quick_and_leaves_jobs_running",
    "test_each_trial_gets_its_own_parameters",
    "test_statuses_come_in_the_order_of_the_handles",
    "test_submitting_the_same_name_twice_starts_it_once",  # by the name of the object, as after a lost answer
    "test_submitting_again_after_a_restart_finds_the_running_job",
    "test_a_lost_answer_doubles_nothing",
    # An object is deleted in one way, whatever it is.
    "test_canceling_twice_or_after_the_end_is_harmless",
    "test_canceling_right_after_submitting_works",
    "test_no_gpus_means_that_none_is_visible",  # by the template of all pods
}
"""Of these, what is the same code for all kinds of objects of a cluster: plain Jobs have it every day."""

PLATFORM_MATTERS = KIND_MATTERS | {
    "test_the_documented_variables_are_there",
    "test_the_trial_runs_among_its_code",
    "test_what_is_ignored_is_not_sent",
    "test_large_parameters_arrive_whole",
    "test_metrics_arrive_once_and_in_order",
    "test_a_metric_right_before_a_violent_end_arrives",
    "test_a_job_of_an_earlier_manager_can_be_canceled",
    "test_the_token_is_on_no_command_line_and_in_no_handle",
    "test_a_service_can_be_closed_twice_and_opened_again",
    "test_handles_are_json_and_differ",
}
"""And those that a platform can break by the way in which it hands over specification, code and variables."""

BATCH_MATTERS = PLATFORM_MATTERS - {
    # The middle tells jobs apart, cancels them, closes, and keeps their handles.
    "test_canceling_twice_or_after_the_end_is_harmless",
    "test_closing_is_quick_and_leaves_jobs_running",
    "test_handles_are_json_and_differ",
    "test_canceling_one_job_leaves_the_others_alone",
    "test_statuses_come_in_the_order_of_the_handles",
    "test_a_job_of_an_earlier_manager_can_be_canceled",
    # By the name, as after a lost answer.
    "test_submitting_again_after_a_restart_finds_the_running_job",
    "test_submitting_the_same_name_twice_starts_it_once",
    # The core packs the code once for all platforms, and the keeper writes and sends reports.
    "test_what_is_ignored_is_not_sent",
    "test_a_metric_right_before_a_violent_end_arrives",
    # Parameters are in the specification, which large ones put to the test.
    "test_each_trial_gets_its_own_parameters",
    "test_a_service_can_be_closed_twice_and_opened_again",
}
"""The same for plugins that are built on `BatchService`, of which one, that of DLTS, runs all of `PLATFORM_MATTERS`."""

MIDDLE_MATTERS = {
    "test_a_state_that_is_not_known_is_no_end",
    "test_a_running_job_that_is_removed_is_ended",
    "test_the_platform_ends_a_trial_that_does_not_hear_of_its_cancellation",
}
"""The cases of `BatchContract` that depend on `BatchService` alone. They run every day on the example of a plugin."""


def is_for_long_runs(item: pytest.Item) -> bool:
    """Whether this is a case that need not run every day in its class."""
    kind = getattr(item, "cls", None)
    if kind is None or getattr(kind, "every_case", True):
        return False
    name = getattr(item, "originalname", "")
    if issubclass(kind, BatchContract):
        return name in MIDDLE_MATTERS
    if not issubclass(kind, ServiceContract):
        return False
    return hasattr(ServiceContract, name) and name not in getattr(kind, "matters", PLATFORM_MATTERS)
