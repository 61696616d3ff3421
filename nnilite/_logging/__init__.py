"""Keeps secrets out of what nnilite writes, and repeated lines of strangers out of its logs.

redaction      takes secrets out of text
secret_filter  takes them out of log records
sparse_log     limits log lines that outsiders can cause
"""
