"""What the test run itself checks and reports, as pytest plugins that `tests/conftest.py` loads.

process_starts       only tests that are marked `process` start one
left_processes       no process outlives the run
durations            the table of durations per folder
"""
