"""`nni.tools.nnictl`: functions that scripts call instead of the commands. `args` is as NNI's parser makes it.

updater        changes a running experiment
launcher       creates, resumes and views experiments
nnictl_utils   stops experiments, and lists them and their trials
config_utils   all experiments of this user
command_calls  carries out the command of nnictl that each function stands for
"""
