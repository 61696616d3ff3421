"""Reports at which niceness it runs."""

import os

import nnilite

nnilite.report_final_result({"default": nnilite.get_next_parameter()["x"], "niceness": os.nice(0)})
