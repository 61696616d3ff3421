"""What `nni.experiment` has besides the names of the program itself.

config  the classes with which NNI's users write a config in Python
"""
