"""The tuner host: tuner and assessor run in a child process, where a slow or crashing one does no harm.

tuner_client     the manager's side: calls the child, and rebuilds it after a crash
tuner_process    the child as a process, from its start to its end
answer_check     checks what the child answers
child            the child's side: makes the tuner and obeys line by line
advisor_results  which intermediate results an advisor of NNI receives
return_checks    what users' classes return or declare wrongly, with the cure
later_trials     tuners that send trials later, by the st_callback of NNI
"""

LONGEST_LINE = 32 << 20
"""How many bytes an answer of the child may have. It refuses a longer one itself, in words."""

PROCESS_NAME = "nnilite-tuner"
"""What Linux shows as the name of the child."""
