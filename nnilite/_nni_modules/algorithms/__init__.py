"""`nni.algorithms`: the tuners and assessors of it.

hpo  our tuners and assessors, by NNI's modules and names
"""
