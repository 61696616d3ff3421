"""What `nnilite.search` is made of.

plan              what a search is: its space, tuner and assessor, as the config of an experiment
journal           the folder of a search, in which its processes share what they have done
progress          shows how far a run is
result_values     values of trials: as JSON, as results, and as calls of the tuner
search_result     what a search has found
loop              runs the user's function, trial by trial
function_arguments  how many arguments the function takes, and what cannot be called
search_arguments  what arguments of `Search` of a wrong type should be
argument_synonyms  what users of optuna would write, and the words here
outcomes          how trials end
trial_threads     threads for it, which end with the program
program_end       what a search says once the program has ended around it
forked_search     what a forked process has of a search at which its parent was at work
worker_processes  worker processes for it, and their messages
worker            the program of such a process
"""
