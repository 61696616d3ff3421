"""Keeps secrets out of what nnilite writes.

redaction      takes secrets out of text
secret_filter  takes them out of log records, and repeated lines of strangers out of logs
"""
