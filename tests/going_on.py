"""A run whose training goes on, made of a finished one."""

import json
from pathlib import Path

from limner.durable import opened, sealed
from limner.inference.source import RUN_FILE, STATE_FILE


def going_on(run: Path) -> None:
    """Let a finished run accept a better epoch, as it did while it was trained."""
    (run / STATE_FILE).unlink(missing_ok=True)
    listing = opened(json.loads((run / RUN_FILE).read_text(encoding="utf-8")))
    (run / RUN_FILE).write_text(sealed({**listing, "finished": False}), encoding="utf-8")
