"""Slow twin of one of HGAN's partition branches: MM 2020, section 3.2 and Eq. 1, in loops.

A map is a list of channels, each a list of rows.
"""

import math
from typing import Any

Map = list[list[list[float]]]


def averaged(channels: Map, size: tuple[int, int]) -> Map:
    """Each channel averaged to `size`: place i of h is over rows ⌊i·H/h⌋ to ⌈(i + 1)·H/h⌉."""
    height, width = len(channels[0]), len(channels[0][0])

    def ends(place: int, long: int, short: int) -> range:
        return range(place * long // short, -(-(place + 1) * long // short))

    return [
        [
            [
                _mean(
                    [channel[y][x] for y in ends(row, height, size[0]) for x in ends(column, width, size[1])]
                )
                for column in range(size[1])
            ]
            for row in range(size[0])
        ]
        for channel in channels
    ]


def convolved(channels: Map, filters: list[Any], bias: list[float] | None = None) -> Map:
    """Filters of odd size, with zeros around the map, so that it keeps its size."""
    height, width = len(channels[0]), len(channels[0][0])
    around = len(filters[0][0]) // 2

    def at(own: list[Any], y: int, x: int) -> float:
        total = 0.0
        for channel, kernel in zip(channels, own, strict=True):
            for dy, row in enumerate(kernel):
                for dx, weight in enumerate(row):
                    py, px = y + dy - around, x + dx - around
                    if 0 <= py < height and 0 <= px < width:
                        total += weight * channel[py][px]
        return total

    return [
        [[at(own, y, x) + (bias[number] if bias else 0.0) for x in range(width)] for y in range(height)]
        for number, own in enumerate(filters)
    ]


def normed(
    maps: list[Map],
    scale: list[float],
    shift: list[float],
    statistics: tuple[list[float], list[float]] | None,
    epsilon: float = 1e-5,
) -> list[Map]:
    """Batch norm by the mean and variance given, or by those of all places of all images (training)."""
    found: list[Map] = [[] for _ in maps]
    for channel in range(len(scale)):
        values = [value for one in maps for row in one[channel] for value in row]
        if statistics is None:
            mean = _mean(values)
            variance = _mean([(value - mean) ** 2 for value in values])
        else:
            mean, variance = statistics[0][channel], statistics[1][channel]
        for one, own in zip(maps, found, strict=True):
            own.append(
                [
                    [
                        scale[channel] * (value - mean) / math.sqrt(variance + epsilon) + shift[channel]
                        for value in row
                    ]
                    for row in one[channel]
                ]
            )
    return found


def windows(channels: Map, kernel: tuple[int, int], stride: tuple[int, int]) -> list[list[float]]:
    """The mean of each window, row by row, as vectors of all channels; what is left at the end is in none."""
    height, width = len(channels[0]), len(channels[0][0])
    return [
        [
            _mean([channel[top + y][left + x] for y in range(kernel[0]) for x in range(kernel[1])])
            for channel in channels
        ]
        for top in range(0, height - kernel[0] + 1, stride[0])
        for left in range(0, width - kernel[1] + 1, stride[1])
    ]


def regions(
    maps: list[Map],
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    convolution: list[Any],
    norm: tuple[list[float], list[float], tuple[list[float], list[float]] | None],
    reduce: tuple[list[list[float]], list[float]],
) -> list[list[list[float]]]:
    """V_w or V_p of images: map, convolution, norm, ReLU, windows, and a 1×1 convolution of the windows."""
    own = normed([convolved(averaged(one, size), convolution) for one in maps], *norm)
    active = [[[[max(0.0, value) for value in row] for row in channel] for channel in one] for one in own]
    weight, bias = reduce
    return [
        [
            [
                sum(w * value for w, value in zip(row, window, strict=True)) + b
                for row, b in zip(weight, bias, strict=True)
            ]
            for window in windows(one, kernel, stride)
        ]
        for one in active
    ]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
