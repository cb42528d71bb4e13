"""Where limner keeps what it can make again: computed features, compiled code."""

import os
from pathlib import Path


def user_cache() -> Path:
    """`limner` in the user's cache folder: `$XDG_CACHE_HOME`, else `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "limner"
