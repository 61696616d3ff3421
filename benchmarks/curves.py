"""How a cost grows with the size of the work: the fitted exponent, and a picture of it with two logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 35, 50
_GREY = "#808080"  # can be read on white and on black
_BLUE = "#3d7dd8"


@dataclass(frozen=True)
class Curve:
    """What was measured: (size, value) pairs, all above 0."""

    name: str
    size: str
    value: str
    points: Sequence[tuple[float, float]]

    @property
    def exponent(self) -> float:
        """The b of value = a * size ** b, by least squares of the logarithms. ValueError: fewer than two sizes."""
        if len({size for size, _ in self.points}) < 2:
            raise ValueError(f"{self.name}: an exponent needs at least two sizes")
        logs = [(math.log(size), math.log(value)) for size, value in self.points]
        middle = sum(x for x, _ in logs) / len(logs)
        return sum((x - middle) * y for x, y in logs) / sum((x - middle) ** 2 for x, _ in logs)


def svg(curve: Curve) -> str:
    """The points and the line between them, on whole decades."""
    across, up = (_decades([point[axis] for point in curve.points]) for axis in (0, 1))
    right, low = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(size: float) -> float:
        return LEFT + (right - LEFT) * (math.log10(size) - across[0]) / (across[1] - across[0])

    def y(value: float) -> float:
        return low - (low - TOP) * (math.log10(value) - up[0]) / (up[1] - up[0])

    parts = [_text(WIDTH / 2, 20, f"{curve.name}: exponent {curve.exponent:.2f}")]
    for power in range(across[0], across[1] + 1):
        parts += [_line(x(10.0**power), TOP, x(10.0**power), low), _text(x(10.0**power), low + 16, f"{10.0**power:g}")]
    for power in range(up[0], up[1] + 1):
        parts += [_line(LEFT, y(10.0**power), right, y(10.0**power))]
        parts += [_text(LEFT - 24, y(10.0**power) + 4, f"{10.0**power:g}")]
    parts.append(_text((LEFT + right) / 2, HEIGHT - 10, curve.size))
    parts.append(_text(14, (TOP + low) / 2, curve.value, f' transform="rotate(-90 14 {(TOP + low) / 2:g})"'))
    places = [(x(size), y(value)) for size, value in sorted(curve.points)]
    drawn = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    parts.append(f'<polyline points="{drawn}" fill="none" stroke="{_BLUE}" stroke-width="2"/>')
    parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{_BLUE}"/>' for a, b in places]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    return "\n".join([f'{head} font-size="12">', *parts, "</svg>", ""])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{_GREY}" stroke-opacity="0.4"/>'


def _text(x: float, y: float, words: str, turn: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{_GREY}" text-anchor="middle"{turn}>{escape(words)}</text>'
