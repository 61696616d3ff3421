"""What each trial of `experiment.py` runs."""

import nnilite

parameters = nnilite.get_next_parameter()
x, y = parameters["x"], parameters["y"]
nnilite.report_final_result((1 - x) ** 2 + 100 * (y - x**2) ** 2)
