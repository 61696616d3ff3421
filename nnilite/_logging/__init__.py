"""Keeps secrets out of what nnilite writes, and repeated lines of strangers out of its logs.

redaction      removes secrets from text
secret_filter  removes them from log records
sparse_log     limits log lines that outsiders can cause
"""
