"""Keeps secrets out of what nnilite writes, repeated lines of strangers out of its logs, and trials off terminals.

log_file       opens a log, and follows no link in its place
redaction      removes secrets from text
secret_filter  removes them from log records
sparse_log     limits log lines that outsiders can cause
terminal_text  text of trials for a terminal, which would obey its control sequences
"""
