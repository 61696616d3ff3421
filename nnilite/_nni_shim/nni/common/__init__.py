"""`nni.common`: what custom tuners use of it.

hpo_utils  search spaces by paths, no parameters twice, the check of a search space, the two directions of a search
"""
