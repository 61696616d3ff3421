"""`nni.tools`: of it, the package of NNI's commands.

nnictl  functions that scripts call instead of the commands
"""
