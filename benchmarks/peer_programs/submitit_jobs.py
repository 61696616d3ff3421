"""Jobs of submitit on this machine, each a process of its own."""

import random
import sys
import time

import submitit


def objective(x):
    return x


executor = submitit.LocalExecutor(sys.argv[2])
executor.update_parameters(timeout_min=5)
running, left = [], int(sys.argv[1])
while left or running:
    running = [job for job in running if not job.done()]
    while left and len(running) < 2:
        running.append(executor.submit(objective, random.random()))
        left -= 1
    time.sleep(0.002)
