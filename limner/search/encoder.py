"""The encoder as search sees it."""

from typing import Protocol, runtime_checkable

from limner.types import Encoder


@runtime_checkable
class PictureEncoder(Encoder, Protocol):
    """A `limner.types.Encoder`, told from other values at run time; any `limner.runs.Run` is one."""
