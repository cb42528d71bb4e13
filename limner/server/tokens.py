"""Named tokens with rights, in a file that holds their hashes, and the check of a token that a request sends."""

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from limner.documented import Documented
from limner.durable import write_whole
from limner.errors import SettingsError
from limner.server.ownership import keep_owner

Right = Literal["search", "add", "erase"]
"""A right of a token: to search and look at pictures, to add pictures, to delete and erase them."""

RIGHTS: tuple[Right, ...] = get_args(Right)

SINGLE = "--token-file"
"""Name of the token that has no name of its own; no name in a file can be the same."""

_SURE = 2_000_000_000
"""Nanoseconds after which the time of a file's change tells its versions apart."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

log = logging.getLogger("limner.server")


@dataclass(frozen=True)
class Token:
    """A token without the token itself: its name, its rights, the SHA-256 of its characters, and its last day."""

    name: str
    rights: frozenset[Right]
    sha256: str
    expires: date | None = None

    @property
    def has_expired(self) -> bool:
        """True after its last day."""
        return is_over(self.expires)


def is_over(day: date | None) -> bool:
    """True after a day, in UTC; False for none."""
    return day is not None and day < datetime.now(UTC).date()


class StoredToken(Documented):
    """A token in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=f"^{_NAME}$")
    """Its name, which the audit log has."""

    rights: tuple[Right, ...] = Field(min_length=1)
    """Its rights."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of the token."""

    created: str
    """Time when it was made."""

    expires: date | None = None
    """Its last day, in UTC; null = it does not expire."""


class _TokenFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    tokens: tuple[StoredToken, ...] = ()


def read_tokens(file: Path) -> tuple[StoredToken, ...]:
    """Read a file of tokens. Raises `SettingsError`."""
    try:
        tokens = _TokenFile.model_validate_json(file.read_bytes()).tokens
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror or error})") from None
    except ValidationError:
        raise SettingsError(f"{file}: is no file of tokens; `limner token add` makes one") from None
    if len({token.name for token in tokens}) < len(tokens):
        raise SettingsError(f"{file}: two tokens have the same name")
    return tokens


def add_token(file: Path, name: str, rights: Collection[Right], *, expires: date | None = None) -> str:
    """Make a token, add its hash to a file, and return it. A file that does not exist is made.

    `expires` is its last day, in UTC. Raises `SettingsError`.
    """
    if is_over(expires):
        raise SettingsError(
            f"a token until {expires} would have expired already; expected today or a later day"
        )
    if not re.fullmatch(_NAME, name):
        raise SettingsError(f"expected a name of letters, digits, '.', '_' and '-', got {name[:80]!a}")
    # 256 random bits: nobody finds it from its hash, so that no slow hash is needed
    token = secrets.token_urlsafe(32)
    with _changing(file):
        tokens = read_tokens(file) if file.exists() else ()
        if any(other.name == name for other in tokens):
            raise SettingsError(f"{file}: a token {name!r} exists; revoke it first, or take another name")
        chosen = tuple(right for right in RIGHTS if right in rights)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        made = StoredToken(
            name=name, rights=chosen, sha256=_hash(token.encode()), created=created, expires=expires
        )
        _write(file, (*tokens, made))
    return token


def revoke_token(file: Path, name: str) -> None:
    """Remove a token from a file. Raises `SettingsError`."""
    with _changing(file):
        tokens = read_tokens(file)
        left = tuple(token for token in tokens if token.name != name)
        if len(left) == len(tokens):
            raise SettingsError(f"{file}: there is no token {name[:80]!a}")
        _write(file, left)


class Tokens:
    """The tokens that a running server takes: a single one with all rights, and those of a file.

    The file is read again when it changes. As long as it cannot be read, none of its tokens is taken; `is_whole` is
    false then.

    Raises `SettingsError` for a file that cannot be read.
    """

    def __init__(self, single: SecretStr | None, file: Path | None) -> None:
        self.file = file
        self._single: tuple[Token, ...] = ()
        if single is not None:
            self._single = (Token(SINGLE, frozenset(RIGHTS), _hash(single.get_secret_value().encode())),)
        self._named: tuple[Token, ...] = ()
        self._seen: tuple[int, ...] | None = None
        self._fault = ""
        if file is not None:
            self._named = _named(file)

    @property
    def is_whole(self) -> bool:
        """False if the file could not be read when `find` was last called."""
        return not self._fault

    def find(self, given: bytes) -> Token | None:
        """Find the token that a request has sent, one that has expired, too; None if it is none of them."""
        self._look()
        digest, found = _hash(given), None
        # all of them, each in constant time: == and an early end would tell by their time how near a guess is
        for token in (*self._single, *self._named):
            if hmac.compare_digest(digest, token.sha256):
                found = token
        return found

    def _look(self) -> None:
        if self.file is None or (state := _state(self.file)) == self._seen:
            return
        # what was just written may change once more without another time: file systems count in milliseconds
        self._seen = state if abs(time.time_ns() - state[1]) > _SURE else None
        try:
            self._named, fault = _named(self.file), ""
        except SettingsError as error:
            # whoever took it away or broke it may have wanted to revoke one
            self._named, fault = (), str(error)
        if fault and fault != self._fault:
            log.error("%s; no token of it is taken", fault)
        self._fault = fault


def _named(file: Path) -> tuple[Token, ...]:
    return tuple(
        Token(token.name, frozenset(token.rights), token.sha256, token.expires) for token in read_tokens(file)
    )


def _state(file: Path) -> tuple[int, ...]:
    """Tells one version of a file from another, by number, times and size; zeros if it is not there."""
    try:
        state = file.stat()
    except OSError:
        return 0, 0, 0, 0
    # the second time cannot be set: the number is given again to a later file
    return state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size


def _hash(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


@contextmanager
def _changing(file: Path) -> Iterator[None]:
    """Let one process at a time change a file: of two, the later could bring back what the other has revoked."""
    try:
        # the folder's handle, so that no lock file is left
        handle = os.open(file.parent, os.O_RDONLY)
    except OSError as error:
        raise SettingsError(f"{file}: cannot be written ({error.strerror or error})") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(file: Path, tokens: tuple[StoredToken, ...]) -> None:
    text = json.dumps(_TokenFile(tokens=tokens).model_dump(mode="json"), indent=2) + "\n"
    try:
        before = file.stat() if file.exists() else None
        # a server that reads it meanwhile must find all or nothing of it; a new one is for its owner only
        write_whole(file, text, mode=0o600, opened=lambda handle: keep_owner(handle, before))
    except OSError as error:
        raise SettingsError(f"{file}: cannot be written ({error.strerror or error})") from None
