"""A Python function as the command of trials, on any training service.

call_program         the program of such a trial: it runs on workers
pickled              the function as bytes, what they need, and which part of a function cannot be sent
function_folder      the folder that trials get: the function, that program, and a copy of the user's code
run_targets          where a function is to run: what `on=` accepts, as a config
function_run         starts or resumes an experiment whose trials call a function, and follows it to its end
search_on_service    what `Search.run` does with `on`
experiment_function  what `Experiment.run` does with a function
"""
