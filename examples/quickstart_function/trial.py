"""Fit a line by gradient descent: a trial as people have written it for NNI, and unchanged here."""

import argparse
import random

import nni
from nni.utils import merge_parameter

SLOPE, INTERCEPT = 2.5, -1.0


def data():
    noise = random.Random(0)
    xs = [n / 50 - 1 for n in range(101)]
    return [(x, SLOPE * x + INTERCEPT + noise.gauss(0, 0.1)) for x in xs]


def loss(points, slope, intercept):
    return sum((slope * x + intercept - y) ** 2 for x, y in points) / len(points)


def main(args):
    points = data()
    slope, intercept = (0.0, 0.0) if args.start == "zero" else (20.0, 20.0)
    step_slope = step_intercept = 0.0
    for _ in range(20):
        errors = [(slope * x + intercept - y, x) for x, y in points]
        step_slope = args.momentum * step_slope - args.rate * sum(2 * e * x for e, x in errors) / len(points)
        step_intercept = args.momentum * step_intercept - args.rate * sum(2 * e for e, _ in errors) / len(points)
        slope, intercept = slope + step_slope, intercept + step_intercept
        nni.report_intermediate_result(loss(points, slope, intercept))
    nni.report_final_result({"default": loss(points, slope, intercept), "slope": slope, "intercept": intercept})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--start", default="zero")
    main(merge_parameter(parser.parse_args(), nni.get_next_parameter()))
