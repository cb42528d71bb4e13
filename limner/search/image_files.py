"""The image files that a store names, as they were when they were indexed."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from limner.data.images import browser_type, encoded_anew, thumbnail
from limner.errors import ChangedPictureError
from limner.store.entry import StoredImage

_TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def open_unchanged(image: StoredImage) -> BinaryIO:
    """Open a file of an image that is still as it was when it was indexed.

    Raises `ChangedPictureError` if each is gone or has changed, `OSError` if the system has no file handle left.
    """
    for place in image.places:
        try:
            # a named pipe in its place would block for ever
            handle = os.open(place.path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in _TOO_MANY_OPEN:
                raise
            continue
        # of the handle, not of the path: behind a path another file could be put between the check and the reading
        state = os.fstat(handle)
        # size and time in place of the digest: hashing would read the file a second time at every view
        if stat.S_ISREG(state.st_mode) and (state.st_size, state.st_mtime_ns) == (image.size, place.mtime):
            return os.fdopen(handle, "rb")
        os.close(handle)
    # one message for both, without the path: a server passes it on to clients
    raise ChangedPictureError("the picture's file is gone or has changed since it was indexed")


def shown_bytes(image: StoredImage) -> bytes:
    """Read an image's file if browsers show it, else make a JPEG of it, or a PNG if a side is too long.

    Raises what `open_unchanged` raises.
    """
    with open_unchanged(image) as file:
        # no more than was indexed, though the file may grow meanwhile
        content = file.read(image.size)
    if browser_type(content[:16]):
        return content
    return encoded_anew(content, Path(image.path).name)[0]


def small_bytes(image: StoredImage) -> bytes:
    """Make a small JPEG from an image's file. Raises what `open_unchanged` raises."""
    with open_unchanged(image) as file:
        return thumbnail(file.read())
