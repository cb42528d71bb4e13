"""A network's parts: what stages freeze and scale rates by."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from torch import nn


class Parted(nn.Module, ABC):
    """A network whose parameters are divided into named parts."""

    @abstractmethod
    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """The modules of each part; every parameter that learns with this network is in exactly one."""

    def parts(self) -> dict[str, list[nn.Parameter]]:
        """The parameters by the names of their parts."""
        return {
            name: [parameter for module in modules for parameter in module.parameters()]
            for name, modules in self.modules_of_parts().items()
        }

    def eval_parts(self, names: Iterable[str]) -> None:
        """Put parts into eval mode, so that their batch norm neither uses nor gathers the batch's statistics."""
        modules = self.modules_of_parts()
        for name in names:
            for module in modules.get(name, ()):
                module.eval()
