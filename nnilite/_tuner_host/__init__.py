"""The tuner host: tuner and assessor run in a child process, where a slow or crashing one does no harm.

tuner_client   the manager's side: calls the child, and rebuilds it after a crash
tuner_process  the child as a process, from its start to its end
child          the child's side: makes the tuner and obeys line by line
hearing        what an advisor of NNI hears of intermediate results
later_trials   tuners that send trials later, by the st_callback of NNI
"""
