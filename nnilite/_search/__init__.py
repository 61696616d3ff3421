"""What `nnilite.search` is made of.

plan              what a search is: its space, tuner and assessor, as the config of an experiment
journal           the folder of a search, in which its processes share what they have done
progress          shows how far a run is
search_result     what a search has found
loop              runs the user's function, trial by trial
function_arguments  how many arguments the function takes, and what cannot be called
outcomes          how trials end
worker_processes  worker processes for it, and their messages
worker            the program of such a process
"""
