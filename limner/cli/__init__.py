"""The command line: `limner COMMAND`."""

from limner.cli.main import app, main

__all__ = ["app", "main"]
