"""`nni.common`: what custom tuners use of it.

hpo_utils  the check of a search space, and the two directions of a search
"""
