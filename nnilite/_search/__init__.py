"""What `nnilite.search` is made of.

plan              what a search is: its space, tuner and assessor, as the config of an experiment
journal           the folder of a search, in which its processes tell each other what they have done
progress          tells how far a run is
loop              runs the user's function, trial by trial
outcomes          how trials end
worker_processes  worker processes for it, and what they say
worker            the program of such a process
"""
