"""Finds out why experiments do not work here: what `nnictl doctor` runs. Every finding has one line of cure.

finding          what a check has found
this_machine     this machine: Python, address, disk, clock, limits, GPUs, proxies
setup            the configuration file, its tuner, its code and its search space
platform_checks  asks each platform whether it would take trials
one_trial        an experiment of one trial, for the doctor
own_command      runs the user's own command as such a trial
script_imports   which installed modules the script of a command imports
rehearsal        a real trial on each platform, on the way to it and the way back
"""
