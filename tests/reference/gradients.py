"""Gradients of a slow twin by central differences, to hold autograd against."""

from collections.abc import Callable

import torch
from torch import Tensor

Rows = list[list[float]]


def numeric_gradients(
    twin: Callable[[Rows, Rows], float], images: Tensor, texts: Tensor, step: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """(f(x + h) - f(x - h)) / 2h for each number of the images and of the sentences."""
    found = []
    for side in range(2):
        gradient = torch.zeros_like(images if side == 0 else texts)
        for row in range(gradient.shape[0]):
            for column in range(gradient.shape[1]):
                values = []
                for sign in (1, -1):
                    moved = [images.tolist(), texts.tolist()]
                    moved[side][row][column] += sign * step
                    values.append(twin(moved[0], moved[1]))
                gradient[row, column] = (values[0] - values[1]) / (2 * step)
        found.append(gradient)
    return found[0], found[1]


def autograd_gradients(
    loss: Callable[[Tensor, Tensor], Tensor], images: Tensor, texts: Tensor
) -> tuple[Tensor, Tensor]:
    """The same by autograd."""
    images, texts = (rows.clone().requires_grad_() for rows in (images, texts))
    of_images, of_texts = torch.autograd.grad(loss(images, texts), (images, texts))
    return of_images, of_texts
