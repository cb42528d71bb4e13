"""The alerts of a store: saved searches, each of which tells of pictures that come and fit it.

They lie in a text of the store beside the folders that it follows, and not in a file of their own: a copy of the store
has them as they were at its moment, with the numbers up to which they have looked.
"""

import difflib
import os
import unicodedata
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from limner.alert_reports import AlertHit, SavedAlert
from limner.durable import from_json, opened, sealed
from limner.errors import SettingsError, StoreError
from limner.names import same_name
from limner.requests import SearchRequest
from limner.settings import Settings
from limner.store.erasable import identities_in, naming
from limner.store.files import StoreFiles

TEXT = "alerts"
"""Name of the text in which a store keeps them."""

_MOST = 100

Alerts = dict[str, "Alert"]


def _named(name: str) -> str:
    # it stands in an address, and in one line
    signs = set(name) - {"_", " ", ".", "-"}
    fine = all(one.isalnum() or unicodedata.category(one).startswith("M") for one in signs)
    if not fine or not name[:1].isalnum() or len(name) > 60:
        raise PydanticCustomError(
            "name", "expected up to 60 letters, digits, blanks and signs of _.- behind a letter or digit"
        )
    return name


AlertName = Annotated[
    str, AfterValidator(_named), WithJsonSchema({"type": "string", "pattern": r"^[^\W_][\w .-]{0,59}$"})
]
"""The name of an alert."""


class Alert(Settings):
    """A saved search that tells of pictures as they come."""

    name: AlertName
    """Its name: up to 60 letters, digits, blanks and signs of `_.-`."""

    text: str = Field(min_length=1, max_length=2000)
    """The description of what to look for."""

    where: tuple[str, ...] = Field(default=(), max_length=20)
    """Conditions that a picture must meet, too."""

    at_least: float = Field(ge=0, le=1)
    """The least probability or cosine of a picture that is told."""

    by: Literal["probability", "cosine"] = "cosine"
    """Which of the two; it stays, so that `at_least` means the same if the model is calibrated later."""

    hook: str | None = None
    """Address of a web hook."""

    send_picture: bool = False
    """The web hook gets small pictures, too."""

    notify: bool = False
    """A notification on the desktop tells of them, too."""

    seen: int = Field(default=0, ge=0)
    """The highest number of a picture's bytes that was looked at; a store gives each number once."""

    @model_validator(mode="after")
    def _check(self) -> "Alert":
        # a web hook is asked without a proxy, and by no name: both would say more than its owner wrote
        if self.hook is not None and not _is_address(self.hook):
            raise SettingsError(
                "hook: expected an address such as https://example.org/hook, without a user's name"
            )
        if self.send_picture and self.hook is None:
            raise SettingsError("send_picture: there is no web hook to send it to; give hook, too")
        assert self.request.conditions is not None
        return self

    @property
    def request(self) -> SearchRequest:
        """The search. Raises `SettingsError` for a text or a condition that means nothing."""
        return SearchRequest.parse({"text": self.text, "where": self.where})


def _is_address(hook: str) -> bool:
    try:
        parts = urlsplit(hook)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return known and "@" not in parts.netloc and hook.isascii() and hook.isprintable() and " " not in hook


def alerts_of(files: StoreFiles) -> Alerts:
    """The alerts of a store by name. Raises `StoreError` if they are damaged."""
    text = files.rows.text(TEXT)
    if text is None:
        return {}
    try:
        return {one["name"]: Alert.parse(one) for one in opened(from_json(text))["alerts"]}
    except (KeyError, TypeError, ValueError, SettingsError):
        raise StoreError(
            f"{files.folder}: its alerts are damaged; put back a copy of the store", "damaged"
        ) from None


def change_alerts(files: StoreFiles, change: Callable[[Alerts], Mapping[str, Alert]]) -> None:
    """Replace the alerts by what `change` makes of them. Raises `StoreError` while another process writes."""
    with files.writing():
        before = alerts_of(files)
        after = change(dict(before))
        if len(after) > _MOST:
            raise SettingsError(f"a store has at most {_MOST} alerts; take one away")
        if after != before:
            values = [one.model_dump(mode="json") for _, one in sorted(after.items())]
            files.rows.set_text(TEXT, sealed({"alerts": values}) if after else None)


def without(alerts: Alerts, name: str) -> Alerts:
    """All alerts but one. Raises `SettingsError` for a name that no alert has."""
    if name not in alerts:
        close = difflib.get_close_matches(name, alerts, n=1)
        known = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(alerts) or 'none'}"
        raise SettingsError(f"no alert is called {name[:60]!a}; {known}")
    return {other: one for other, one in alerts.items() if other != name}


def saved_alert(alert: Alert, found: int = 0, hits: tuple[AlertHit, ...] = ()) -> SavedAlert:
    """Describe an alert; of its web hook the host alone, since the rest of the address may hold a secret."""
    host = None if alert.hook is None else urlsplit(alert.hook).netloc
    own = alert.model_dump(include={"name", "text", "where", "by", "at_least", "notify"})
    return SavedAlert(hook=host, found=found, hits=hits, **own)


def leave_alerts(files: StoreFiles, names: Collection[str], paths: Collection[str]) -> int:
    """Take away alerts that name an identity or a path that was erased, and return how many there were."""
    alerts = alerts_of(files)
    texts = {one.name: "\n".join((one.name, one.text, *one.where)) for one in alerts.values()}
    same = set(map(same_name, names))
    out = {
        *naming(set(names), texts.items()),
        *(name for name, text in texts.items() if os.sep in text and any(path in text for path in paths)),
        *(
            name
            for name, one in alerts.items()
            if not same.isdisjoint(map(same_name, identities_in(one.request.conditions)))
        ),
    }
    if out:
        change_alerts(files, lambda alerts: {name: one for name, one in alerts.items() if name not in out})
    return len(out)
