"""`nni.algorithms`: its tuners and assessors."""
