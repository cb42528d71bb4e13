"""Where limner keeps what it can make again: computed features, compiled code."""

import os
from pathlib import Path


def user_cache() -> Path:
    """`limner` in the user's cache folder: `$XDG_CACHE_HOME` where that is an absolute path, else `~/.cache`.

    Raises `RuntimeError` for a user without a home.
    """
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "limner"
