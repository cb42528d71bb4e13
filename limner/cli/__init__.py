"""The command line: `limner COMMAND`."""

from limner.cli.main import main
from limner.cli.root import app

__all__ = ["app", "main"]
