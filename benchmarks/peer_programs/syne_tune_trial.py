"""A trial of Syne Tune."""

from argparse import ArgumentParser

from syne_tune import Reporter

parser = ArgumentParser()
parser.add_argument("--x", type=float)
options, _ = parser.parse_known_args()
Reporter()(y=options.x)
