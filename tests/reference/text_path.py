"""The text CNN's blocks written plainly with `nn.Conv1d` over (batch, channels, words)."""

import torch.nn.functional as F
from torch import Tensor, nn

from limner.models.text_cnn import TextBlock, TextCNN


class PlainBlock(nn.Module):
    """Figure 3's block; 1×2 filters see one zero on the left."""

    def __init__(self, block: TextBlock) -> None:
        super().__init__()
        middle, inputs, _ = block.conv1.weight.shape
        outputs = block.conv3.weight.shape[0]
        stride = block.stride
        self.conv1, self.bn1 = nn.Conv1d(inputs, middle, 1, bias=False), nn.BatchNorm1d(middle)
        self.conv2, self.bn2 = nn.Conv1d(middle, middle, 2, stride, bias=False), nn.BatchNorm1d(middle)
        self.conv3, self.bn3 = nn.Conv1d(middle, outputs, 1, bias=False), nn.BatchNorm1d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if not isinstance(block.shortcut, nn.Identity):
            self.shortcut = nn.Sequential(
                nn.Conv1d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm1d(outputs)
            )
        self.load_state_dict(block.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(F.pad(out, (1, 0)))))
        return F.relu(self.bn3(self.conv3(out)) + self.shortcut(x))


def plain_blocks(encoder: TextCNN) -> nn.Sequential:
    """The same blocks with the same weights."""
    return nn.Sequential(*[PlainBlock(block) for block in encoder.blocks if isinstance(block, TextBlock)])
