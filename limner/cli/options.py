"""Options that several commands have."""

from typing import Annotated

import typer

Cpu = Annotated[bool, typer.Option("--cpu", help="Use the CPU even where there is an accelerator.")]


def device(cpu: bool) -> str | None:
    """The device that `load_run` is asked for; None lets it choose."""
    return "cpu" if cpu else None
