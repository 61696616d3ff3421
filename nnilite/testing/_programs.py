"""What the trials of the service contract do."""

REPORT_ENVIRONMENT = """
import nnilite, os
nnilite.report_final_result({"cwd": os.getcwd(), "env": dict(os.environ)})
"""

IMPORT = """
import sys, nnilite
sys.path.insert(0, sys.argv[1])
import mod
nnilite.report_final_result(mod.VALUE)
"""

LIST = """
import os, nnilite
nnilite.report_final_result(sorted(os.path.join(d, f)[2:] for d, _, files in os.walk(".") for f in files))
"""

SOIL = """
import nnilite
with open("shared.txt", "r+") as file:
    nnilite.report_final_result(file.read())
    file.seek(0)
    file.write("dirty")
"""
