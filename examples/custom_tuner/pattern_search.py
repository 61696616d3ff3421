"""A tuner of one's own, on NNI's base class: look to both sides of the best point, closer and closer."""

import random

import nni
from nni.tuner import Tuner
from nni.utils import extract_scalar_reward


class PatternSearch(Tuner):
    """For `uniform` parameters. `smallest` is the step, as a part of the range, below which it gives up."""

    def __init__(self, optimize_mode="maximize", smallest=0.01, seed=0):
        self.sign = 1 if optimize_mode == "maximize" else -1
        self.smallest = smallest
        self.random = random.Random(seed)
        self.step = 0.25
        self.best = None  # (score, point)
        self.moves = []
        self.running = set()

    def update_search_space(self, search_space):
        for name, about in search_space.items():
            if about["_type"] != "uniform":
                raise ValueError(f"PatternSearch knows only uniform parameters, and {name} is {about['_type']}")
        self.ranges = {name: about["_value"] for name, about in search_space.items()}

    def generate_parameters(self, parameter_id, **kwargs):
        if self.best is None:
            point = {name: self.random.uniform(*limits) for name, limits in self.ranges.items()}
        else:
            point = self.next_move()
        self.running.add(parameter_id)
        return point

    def next_move(self):
        if not self.moves and not self.running:  # all neighbours are known, and none is better
            self.step /= 2
            self.find_moves()
        if not self.moves or self.step < self.smallest:
            raise nni.NoMoreTrialError  # for now; with a new result it is asked again
        return self.moves.pop()

    def find_moves(self):
        self.moves = []
        point = self.best[1]
        for name, (low, high) in self.ranges.items():
            for side in (-1, 1):
                value = min(high, max(low, point[name] + side * self.step * (high - low)))
                self.moves.append({**point, name: value})

    def receive_trial_result(self, parameter_id, parameters, value, **kwargs):
        score = self.sign * extract_scalar_reward(value)
        if self.best is None or score > self.best[0]:
            self.best = (score, parameters)
            self.find_moves()

    def trial_end(self, parameter_id, success, **kwargs):
        self.running.discard(parameter_id)
