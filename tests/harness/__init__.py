"""What the test run itself checks, reports and makes cheaper, as pytest plugins that `tests/conftest.py` loads.

process_starts       only tests that are marked `process` start one
process_folders      folders whose tests all start one are read only where these are wanted
left_processes       no process outlives the run
durations            the table of durations per folder
group_ends           a platform that one group of tests shares ends with the group
ready_managers       managers that tests start are forked from a process that has imported what they need
ready_programs       the same for any program
memory_files         the files that tests make are in memory
named_files          the files that are named to pytest are read folder by folder
short_names          cases that are long texts get short names
mixed_work           the order in which the processes of `pytest -n` take the tests
"""
