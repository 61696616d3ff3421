"""Makes the trace `spot`: made up, not recorded. `python -m nnilite_simulated._generate` prints it.

Two weeks in steps of a quarter of an hour. The price goes up and down around 0.27 of the price on demand, with the
hours of the day and at random, and an interruption is the more likely the higher the price is.
"""

from __future__ import annotations

import math
import random
import sys

ROW_HOURS = 0.25
DAYS = 14
MEAN_PRICE = 0.27
HOURLY_INTERRUPTION = 0.05


def lines(seed: int = 16) -> list[str]:
    """Return the lines of the file. Prices are in parts of the price on demand."""
    chance = random.Random(seed)
    made, drift = ["hour,price,interruption"], 0.0
    for row in range(int(DAYS * 24 / ROW_HOURS)):
        hour = row * ROW_HOURS
        drift = 0.97 * drift + chance.gauss(0.0, 0.02)
        price = min(max(MEAN_PRICE * (1 + 0.15 * math.sin(hour / 24 * math.tau) + drift), 0.15), 1.0)
        interruption = HOURLY_INTERRUPTION * ROW_HOURS * (price / MEAN_PRICE) ** 2
        made.append(f"{hour:g},{price:.4f},{interruption:.5f}")
    return made


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
