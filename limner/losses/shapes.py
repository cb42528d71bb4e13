"""Tensors that a program gives to a loss, held against the axes that its signatures name, and its classes."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, NamedTuple, get_args

import torch
from torch import Tensor, nn

from limner.errors import SettingsError


class Axes(NamedTuple):
    """The parameters of a method in their order, the axes of its tensors, and which of these are of whole numbers."""

    order: tuple[str, ...]
    of: Mapping[str, Sequence[str]]
    whole: frozenset[str]


class ShapeChecked(nn.Module):
    """A module whose calls, and whose public methods, take tensors of the shapes that they name, and no others.

    Numbers in a column of their own, (batch, 1), would be compared with each other along another axis, and the loss of
    something else come out without a word. A call reads shapes alone, so that nothing waits for a device: 6 µs of the
    290 that SDM of eight pairs takes; classes are read on the CPU, where a wrong one would be another row's or none. In
    limner's own loop `Loss.terms` calls `forward`, whose batch limner made.
    """

    _width: int | None = None
    """The width of embeddings that it was made for; None = any."""
    _identities: int | None = None
    """How many classes it tells apart, if it does."""

    _axes: ClassVar[Axes]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._axes = _axes_of(cls.forward)
        for name, method in list(vars(cls).items()):
            is_public = inspect.isfunction(method) and name[0] != "_" and name != "forward"
            if is_public and (axes := _axes_of(method)).of:
                setattr(cls, name, _checked(method, axes))

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call `forward`. Raises `SettingsError` for a tensor of another shape, with its name."""
        self._expect(self._axes, given, named)
        return super().__call__(*given, **named)

    def _sized(self, dim: int, identities: int) -> None:
        for name, size in (("dim", dim), ("identities", identities)):
            if size < 1:
                raise SettingsError(f"{type(self).__name__}: {name}: expected at least 1, got {size}")
        self._width, self._identities = dim, identities

    def _expect(self, axes: Axes, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        sizes: dict[str, int] = {} if self._width is None else {"dim": self._width}
        for name, value in (*zip(axes.order, given, strict=False), *named.items()):
            if name not in axes.of or value is None:
                continue
            if not isinstance(value, Tensor):
                kind = type(value)
                raise SettingsError(
                    f"{type(self).__name__}: {name}: expected a tensor, got {kind.__module__}.{kind.__qualname__}"
                )
            if name in axes.whole and value.is_floating_point():
                raise SettingsError(
                    f"{type(self).__name__}: {name}: expected whole numbers, got {value.dtype}"
                )
            shape, wanted = value.shape, axes.of[name]
            found = len(shape) == len(wanted)
            for axis, size in zip(wanted, shape, strict=False):
                found = found and sizes.setdefault(axis, size) == size
            if not found:
                known = ", ".join(str(sizes.get(axis, axis)) for axis in wanted)
                raise SettingsError(
                    f"{type(self).__name__}: {name} has the shape {tuple(shape)}, ({known}) was expected: "
                    f"({', '.join(wanted)})"
                )
            if "batch" in wanted and not len(value):
                raise SettingsError(
                    f"{type(self).__name__}: {name} is of no pair, and the mean of none is no number"
                )
            if self._identities is not None and name in axes.whole and value.device.type == "cpu":
                self._expect_classes(name, value)

    def _expect_classes(self, name: str, value: Tensor) -> None:
        # a graph cannot hold a decision about values
        if not torch.compiler.is_compiling() and value.numel():
            low, high = (int(end) for end in value.aminmax())
            if low < 0 or high >= (self._identities or 0):
                raise SettingsError(
                    f"{type(self).__name__}: {name} are classes from 0 to {(self._identities or 0) - 1}, got "
                    f"{low if low < 0 else high}"
                )


def _axes_of(method: Callable[..., Any]) -> Axes:
    parameters = inspect.signature(method).parameters
    kinds = {
        name: one
        for name, parameter in parameters.items()
        # of `X | None` the X; a loss of another package may have no annotations
        for one in (parameter.annotation, *get_args(parameter.annotation))
        if hasattr(one, "dim_str")
    }
    return Axes(
        tuple(parameters)[1:],
        {name: kind.dim_str.split() for name, kind in kinds.items()},
        frozenset(name for name, kind in kinds.items() if kind.__name__.startswith("Int")),
    )


def _checked(method: Callable[..., Any], axes: Axes) -> Callable[..., Any]:
    @wraps(method)
    def checked(self: ShapeChecked, *given: Any, **named: Any) -> Any:
        self._expect(axes, given, named)
        return method(self, *given, **named)

    return checked
