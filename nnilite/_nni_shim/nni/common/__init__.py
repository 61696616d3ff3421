"""`nni.common`: what custom tuners use of it.

serializer  JSON as Python's own, and `trace`, which changes nothing
hpo_utils   search spaces by paths, no parameters twice, the check of a search space, the two directions of a search
"""
