"""The command line: `limner COMMAND`."""
