"""The losses of a step on their way from the device."""

from collections.abc import Mapping

import torch
from torch import Tensor


class StepLosses:
    """The copy to the processor's memory begins at once, `read` waits for it; a GPU goes on computing meanwhile."""

    def __init__(self, losses: Mapping[str, Tensor]) -> None:
        self._names = tuple(losses)
        # Together, and once: each value that is read waits for a GPU.
        values = torch.stack([*losses.values()])
        self._copied: torch.cuda.Event | None = None
        if values.is_cuda:
            self._values = values.to("cpu", non_blocking=True)
            # The copy alone is waited for, not what the GPU was given behind it.
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
        else:
            self._values = values

    def read(self) -> dict[str, float]:
        """The losses by name."""
        if self._copied is not None:
            self._copied.synchronize()
        return dict(zip(self._names, self._values.tolist(), strict=True))
