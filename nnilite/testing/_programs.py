"""What the trials of the service contract do."""

REPORT_ENVIRONMENT = """
import nnilite, os
nnilite.report_final_result({"cwd": os.getcwd(), "env": dict(os.environ)})
"""

MEET = """
import pathlib, time
place = pathlib.Path({!r})
(place / {!r}).touch()
while len(list(place.iterdir())) < 3: time.sleep(0.02)
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

STUBBORN = """
import signal, time, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
open(sys.argv[1], "a").write("up\\n")
time.sleep(60)
"""
