"""The errors that limner raises for its users.

Each message says what was expected, what came, and the next step, in one line. Anything else that escapes is a bug of
limner and keeps its stack trace.
"""

from collections.abc import Sequence
from typing import Literal


def install_hint(extra: str) -> str:
    """Name the commands that install an extra."""
    # both, since each works for some users only: limner is not on every package index, and a user of an installed one
    # has no checkout
    return f"pip install '.[{extra}]' in the checkout, or pip install 'limner[{extra}]' from a package index"


class LimnerError(Exception):
    """An error that the user can mend; its message is fit to be shown."""

    # the command line prints the message as it stands and exits with code 2, the server puts it into a problem body


class SettingsError(LimnerError):
    """A recipe, setting or option is unknown, out of range or contradicts another."""


class DataError(LimnerError):
    """A dataset, captions file or sentence cannot be used."""


class ImageError(DataError):
    """One picture cannot be read; the message begins with its name."""


class CheckpointError(LimnerError):
    """A run folder or weight file is missing, damaged, or belongs to another model."""


StoreTrouble = Literal["missing", "forbidden", "disk", "full", "damaged", "model", "busy", "other"]
"""Causes of a `StoreError`: the folder is not there, the system forbids it, the disk or network fails, the disk is
full, what lies there is damaged, it is a store of another model, another process or thread writes, anything else."""


class StoreError(LimnerError):
    """A search store is missing, damaged, or bound to another model; `trouble` says which of these, `part` of what."""

    def __init__(self, message: str, trouble: StoreTrouble = "other", part: str = "the store") -> None:
        super().__init__(message)
        self.trouble, self.part = trouble, part


class UnfinishedErasureError(StoreError):
    """An erasure has deleted what it had to, and failed before its bytes were off the disk; the same call goes on.

    `keys` of the pictures, and of the sentences that were named by theirs.
    """

    def __init__(self, message: str, trouble: StoreTrouble, keys: Sequence[str]) -> None:
        super().__init__(message, trouble)
        self.keys = tuple(keys)


# a StoreError to whoever catches that; the server answers 404 to it in place of 503
class UnknownPictureError(StoreError):
    """The store does not hold this picture, or no longer."""


class ChangedPictureError(StoreError):
    """A picture's file is gone, or is no longer the one that was indexed."""


class ClusterError(LimnerError):
    """A cluster cannot be reached, or its workers cannot work."""


class SearchTimeoutError(LimnerError):
    """A search took longer than its caller allows."""


class ServerError(LimnerError):
    """A search server refused something, or cannot be reached.

    `status` is its HTTP status, None without an answer; `retry_after` the seconds after which it asks to try again.
    """

    def __init__(self, message: str, status: int | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
