"""The experiment manager's program, one process per experiment: wiring and nothing else.

    served_experiment  what a running manager and a viewer have in common: address, token, server, signals
    manager_run     a manager's process while it runs its experiment
    viewing         a viewer's process, which shows one that does not run
    manager         a running experiment, as the REST interface sees it, made of the next three
    manager_control  does what people ask of it
    worker_files    finds the files of its trials, also where the trials ran
    keeper_callbacks  hands what keepers report to the engine
    manager_parts   the parts that run, and the publisher of what is committed
    usage_answers   what running trials use, as it is shown
    port_choice     the port of a manager to which none was given
    tuner_copy      the tuner's first process, a copy of the manager's
    standby         waits until the process learns what it is to manage
    ready_pipe      reports the progress of the start to the process that started the manager
    disk_reserve    disk space with which a stop can be recorded on a full disk
    trial_copies    files of trials that lie on other machines: listed there, and copied here
    provenance_recording  records what runs: code, git state, packages, seeds, GPUs
    cpu_quota       counts the processors that the manager may use, below a quota
    runtime_files   the files that lead others to an experiment and its manager
    log_limits      keeps the logs of an experiment below a limit
    assembly        makes a manager from an experiment's folder
    preview         says what such a manager would do first, for a dry run
    search_from     collects the results from which the tuner of a new experiment learns
    known_results   fits them to its search space

`python -m nnilite._manager` is started by `nnilite._running.manager_process`.
"""
