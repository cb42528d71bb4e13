"""Says whether a network is being traced for export, where shapes must follow from the shapes of the input alone."""

import torch


def is_traced() -> bool:
    """True while `torch.export` records a network.

    Networks that leave out empty positions then keep them behind a mask: how many there are is a value of the input,
    and what is recorded has to hold for every input.
    """
    return torch.compiler.is_exporting()
