"""Shapes of the tensors that a program gives to a loss, held against the axes that its signature names."""

import inspect
from typing import Any, ClassVar, get_args

from torch import Tensor, nn

from limner.errors import SettingsError


class ShapeChecked(nn.Module):
    """A module whose calls take tensors of the shapes that its `forward` names, and no others.

    Numbers in a column of their own, (batch, 1), would be compared with each other along another axis, and the loss of
    something else come out without a word. A call reads shapes alone, so that nothing waits for a device: 6 µs of the
    290 that SDM of eight pairs takes. In limner's own loop `Loss.terms` calls `forward`, whose batch limner made.
    """

    _axes: ClassVar[dict[str, list[str]]]
    _order: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        parameters = inspect.signature(cls.forward).parameters
        cls._order = tuple(parameters)[1:]
        cls._axes = {
            name: one.dim_str.split()
            for name, parameter in parameters.items()
            # of `X | None` the X; a loss of another package may have no annotations
            for one in (parameter.annotation, *get_args(parameter.annotation))
            if hasattr(one, "dim_str")
        }

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call `forward`. Raises `SettingsError` for a tensor of another shape, with its name."""
        sizes: dict[str, int] = {}
        for name, value in (*zip(self._order, given, strict=False), *named.items()):
            if name not in self._axes or not isinstance(value, Tensor):
                continue
            shape, wanted = value.shape, self._axes[name]
            found = len(shape) == len(wanted)
            for axis, size in zip(wanted, shape, strict=False):
                found = found and sizes.setdefault(axis, size) == size
            if not found:
                known = ", ".join(str(sizes.get(axis, axis)) for axis in wanted)
                raise SettingsError(
                    f"{type(self).__name__}: {name} has the shape {tuple(shape)}, ({known}) was expected: "
                    f"({', '.join(wanted)})"
                )
        return super().__call__(*given, **named)
