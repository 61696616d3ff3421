"""A trial that stands for yours: the loss of a search that needs no data."""

import nnilite

rate = {"rate": 0.01, **nnilite.get_next_parameter()}["rate"]
loss = 1.0
for _ in range(10):
    loss *= 1 - rate * (1 - rate)
    nnilite.report_intermediate_result(loss)
nnilite.report_final_result(loss)
