"""`nni.runtime`: what tuners, advisors and trials that were written for NNI import of it.

msg_dispatcher_base    the base class of advisors
tuner_command_channel  the commands that advisors get and send
protocol               the same, where NNI 2 had them
env_vars               the environment of trials and tuners
common                 whether a trial has several phases
log                    calls that change where NNI logs
"""
