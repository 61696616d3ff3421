"""Twenty shapes of learning curves, of twenty results each."""

from __future__ import annotations

import math
import random

SHAPES = {
    "rising": [k / 20 for k in range(20)],
    "falling": [1 - k / 20 for k in range(20)],
    "level": [0.5] * 20,
    "late bloomer": [0.1] * 15 + [0.9] * 5,
    "early": [0.9] * 5 + [0.1] * 15,
    "step": [0.2] * 10 + [0.8] * 10,
    "two steps": [0.2] * 6 + [0.5] * 7 + [0.8] * 7,
    "plateau": [min(k / 8, 0.7) for k in range(20)],
    "noise": [random.Random(k).random() for k in range(20)],
    "noisy rise": [k / 20 + random.Random(k).uniform(-0.2, 0.2) for k in range(20)],
    "zigzag": [0.3 + 0.4 * (k % 2) for k in range(20)],
    "peak": [1 - abs(k - 10) / 10 for k in range(20)],
    "valley": [abs(k - 10) / 10 for k in range(20)],
    "spike": [0.4] * 9 + [1.0] + [0.4] * 10,
    "one NaN": [0.5] * 7 + [math.nan] + [0.5] * 12,
    "NaN first": [math.nan, *([0.5] * 19)],
    "negative": [k / 20 - 1 for k in range(20)],
    "tiny": [1e-12 * k for k in range(20)],
    "huge": [1e12 * k for k in range(20)],
    "saturating": [1 - 2.0**-k for k in range(20)],
}
