"""Checkpoints of ended trials, and the shared storage that keeps checkpoints, code and outputs.

checkpoint_tidying  deletes the checkpoints of ended trials that need not be kept
checkpoint_rule     which checkpoints are to stay
checkpoint_folders  the checkpoints on this machine
stored_checkpoints  the checkpoints in the shared storage
shared_storage      what keepers know of the shared storage, and whether it can be used
"""
