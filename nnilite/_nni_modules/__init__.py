"""Modules that programs for NNI import and that need the whole nnilite. `import nni` finds them here, as its own.

algorithms  our tuners and assessors under NNI's names, to derive from
tools       the functions behind NNI's commands
experiment  the classes with which a config is written in Python
hyperopt    NNI's HyperoptTuner, which is several tuners in one
"""
