"""The experiment manager: one process per experiment.

app          puts the parts together and serves them
engine       the one task that owns all trials: takes inputs, asks the rules, commits, then acts
rules        the pure state machine: no I/O, no clock, no randomness
steps        what goes into the rules and what comes out of them
intake       numbered events of keepers in: drops duplicates, finds gaps
tuner_host   the child process in which tuner and assessor run, and its client
store        the SQLite database: what is not committed there has not happened
"""
