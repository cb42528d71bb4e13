"""The reports of alerts: what each has found, and which a store has."""

import operator
from datetime import datetime
from typing import Literal

from pydantic import Field

from limner.wire import LocalTime, ResponseModel


class AlertHit(ResponseModel):
    """A picture that an alert tells of."""

    id: str
    """The picture's key."""
    name: str
    """Name of its file; of one that a client has added, what the client called it."""
    score: float
    """Cosine with the alert's text."""
    probability: float | None
    """Probability that it is a right answer; null if the alert goes by the cosine."""
    taken: LocalTime | None
    """Capture time by the camera's clock, ISO 8601 without a zone."""
    picture: str | None = Field(default=None, exclude_if=operator.not_)
    """A small JPEG in base64; for a web hook that asks for it alone."""


class AlertReport(ResponseModel):
    """New pictures that fit an alert, the best first. A web hook gets at most 20 of them in one request."""

    alert: str
    """Name of the alert."""
    text: str
    """Its text."""
    where: tuple[str, ...]
    """Its conditions."""
    by: Literal["probability", "cosine"]
    """The kind of value that `at_least` is."""
    at_least: float
    """The least probability or cosine of a picture that is told."""
    found_at: datetime
    """The time at which they were found."""
    hits: tuple[AlertHit, ...]
    """The pictures."""

    def lines(self, most: int) -> list[str]:
        """Say in lines what was found and why, of so many pictures."""
        told = []
        for hit in self.hits[:most]:
            by, value = ("cosine", hit.score) if hit.probability is None else ("probability", hit.probability)
            taken = "" if hit.taken is None else f", taken {hit.taken:%Y-%m-%d %H:%M}"
            told.append(f"alert {self.alert}: {hit.name}, {by} {value:.2f}{taken}")
        left = len(self.hits) - most
        return [*told, f"alert {self.alert}: {left:,} more"] if left > 0 else told


class SavedAlert(ResponseModel):
    """An alert of a store."""

    name: str
    """Its name."""
    text: str
    """The description of what to look for."""
    where: tuple[str, ...]
    """Conditions that a picture must meet, too."""
    by: Literal["probability", "cosine"]
    """The kind of value that `at_least` is."""
    at_least: float
    """The least probability or cosine of a picture that is told."""
    hook: str | None
    """Host of its web hook."""
    notify: bool
    """True if a notification on the desktop tells of its pictures, too."""
    fits: int | None = None
    """Pictures that fitted it already when it was saved, of which it does not tell; null in any other answer."""
    found: int = 0
    """Pictures that it has found since this server began."""
    hits: tuple[AlertHit, ...] = ()
    """The last of them that the store holds, at most 20."""


class AlertList(ResponseModel):
    """The alerts of a server's store."""

    alerts: tuple[SavedAlert, ...]
    """By name."""
    may_change: bool
    """True if the token may save alerts and take them away."""
