"""`nni.algorithms`: of it there are the tuners and assessors.

hpo  our tuners and assessors, by NNI's modules and names
"""
