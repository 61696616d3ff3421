"""Reports the parameter that it got."""

import nnilite

nnilite.report_final_result(nnilite.get_next_parameter()["x"])
