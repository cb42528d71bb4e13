"""The errors that limner raises for its users.

Each message says what was expected, what came, and the next step, in one line: the command line prints
it as it stands and exits with code 2, the server puts it into a problem body. Anything else that escapes is a
bug of ours and keeps its stack trace.
"""


def install_hint(extra: str) -> str:
    """The commands that install an extra.

    Both, since each works for some users only: limner is not on every package index, and a user of an installed one has
    no checkout.
    """
    return f"pip install '.[{extra}]' in the checkout, or pip install 'limner[{extra}]' from a package index"


class LimnerError(Exception):
    """Something the user can mend; the message is fit to be shown."""


class SettingsError(LimnerError):
    """A recipe, setting or option is unknown, out of range or contradicts another."""


class DataError(LimnerError):
    """A dataset, captions file or sentence cannot be used."""


class ImageError(DataError):
    """One picture cannot be read; the message begins with its name."""


class CheckpointError(LimnerError):
    """A run folder or weight file is missing, damaged or of another model."""


class StoreError(LimnerError):
    """A search store is missing, damaged, or bound to another model."""


class UnknownPictureError(StoreError):
    """A picture that the store does not hold, or no longer."""


class ChangedPictureError(StoreError):
    """A picture whose file is gone, or is no longer the one that was indexed."""


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
