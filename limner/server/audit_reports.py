"""The results of `limner audit verify` and `limner audit forget`."""

from limner.wire import ResponseModel


class AuditVerification(ResponseModel):
    """The result of `limner audit verify`."""

    lines: int
    """Lines of the file."""

    sound: bool
    """True if each line holds the digest of its predecessor, and the digest that was asked for was found."""

    broken: int | None
    """Number of the first line that does not fit the one before, from 1; either may be the one that was changed."""

    reason: str | None
    """The fault, if there is one."""

    removed: int
    """Lines that the first line says were removed because they were old; nothing proves it."""

    since: str | None
    """Time of the first request that is left."""

    forgotten: int
    """Lines from which something was removed; of these only their place is proven."""

    digest: str | None
    """Number and digest of the last line, "12:4c1e…"; keep it elsewhere, to ask for it later."""

    holds: bool | None
    """True if a line has the digest that was asked for; null if none was."""


class AuditForgotten(ResponseModel):
    """The result of `limner audit forget`."""

    lines: int
    """Lines of the file."""

    changed: int
    """Lines from which something was removed."""
