"""What `nni.experiment` has beside what is in the program itself.

config  the classes with which NNI's users write a config in Python
"""
