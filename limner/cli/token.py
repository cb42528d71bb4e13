"""`limner token`: make, list and revoke the named tokens of a search server."""

from datetime import date
from pathlib import Path
from typing import Annotated

from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.documented import Result
from limner.errors import SettingsError

app = group("Make, list and revoke the tokens of a search server.")

TokenFile = Annotated[Path, "File of tokens, which `limner serve --tokens` reads."]


class TokenAdded(Result):
    """The result of `limner token add`."""

    name: str
    """Its name, which the audit log has."""
    rights: tuple[str, ...]
    """Its rights."""
    expires: date | None
    """Its last day, in UTC; null = it does not expire."""
    token: str
    """The token; it is told only once."""


class TokenListed(Result):
    """A token in the list of `limner token list`."""

    name: str
    """Its name."""
    rights: tuple[str, ...]
    """Its rights."""
    created: str
    """Time when it was made."""
    expires: date | None
    """Its last day, in UTC; null = it does not expire."""


class TokenRevoked(Result):
    """The result of `limner token revoke`."""

    name: str
    """Name of the revoked token."""


@command(app, "add")
def add_command(
    file: TokenFile,
    name: Annotated[str, "Name of the token's owner, for the audit log."],
    rights: Annotated[
        list[str],
        "Rights with commas between them: search, add, erase; may be repeated.",
    ] = ["search"],  # noqa: B006 - as Typer has it
    expires: Annotated[
        str | None, "Its last day, in UTC, such as 2027-01-31; if not given, it never expires."
    ] = None,
) -> TokenAdded:
    """Make a token, print it, and add its hash to a file.

    A running server takes it at once. The token cannot be read from the file again.
    """
    from limner.server.tokens import RIGHTS, add_token

    asked = [right.strip() for some in rights for right in some.split(",")]
    chosen = [right for right in RIGHTS if right in asked]
    # an error and no smaller rights: a misspelt one would be found out by a refused client
    if unknown := [right for right in asked if right not in RIGHTS]:
        raise SettingsError(f"--rights: expected some of {', '.join(RIGHTS)}, got {unknown[0][:40]!a}")
    try:
        last = None if expires is None else date.fromisoformat(expires)
    except ValueError:
        raise SettingsError(f"--expires: expected a day such as 2027-01-31, got {expires!a}") from None
    token = add_token(file, name, chosen, expires=last)
    until = "" if last is None else f" until {last}"
    err.print(f"{file}: {name} may {', '.join(chosen)}{until}; this is the only time that the token is shown")
    out.print(token)
    return TokenAdded(name=name, rights=tuple(chosen), expires=last, token=token)


@command(app, "list")
def list_command(file: TokenFile) -> list[TokenListed]:
    """Print the names and rights of a file of tokens."""
    from limner.server.tokens import is_over, read_tokens

    tokens = read_tokens(file)
    for token in tokens:
        until = "" if token.expires is None else f"  until {token.expires}"
        until += ", which is over" if is_over(token.expires) else ""
        out.print(f"{token.name}  {','.join(token.rights)}  {token.created}{until}")
    if not tokens:
        err.print(f"{file}: no tokens")
    return [TokenListed.model_validate(token, from_attributes=True) for token in tokens]


@command(app, "revoke")
def revoke_command(file: TokenFile, name: Annotated[str, "Name of the token."]) -> TokenRevoked:
    """Remove a token from a file; a running server refuses it from then on."""
    from limner.server.tokens import revoke_token

    revoke_token(file, name)
    out.print(f"{file}: {name} is revoked")
    return TokenRevoked(name=name)
