"""One Transformer encoder layer for one sentence without padding: Vaswani et al., 2017, sections 3.1 to 3.3."""

import torch
from torch import Tensor, nn


def attended(layer: nn.TransformerEncoderLayer, rows: Tensor) -> Tensor:
    """Self-attention of two heads over the rows, a ReLU layer, each with a residual and a norm behind it."""
    weight, bias = layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias
    q, k, v = (rows @ weight.T + bias).chunk(3, dim=1)
    heads = []
    for head in range(2):
        own = slice(4 * head, 4 * head + 4)
        attention = (q[:, own] @ k[:, own].T / 2).softmax(dim=1)
        heads.append(attention @ v[:, own])
    x = layer.norm1(rows + layer.self_attn.out_proj(torch.cat(heads, dim=1)))
    found: Tensor = layer.norm2(x + layer.linear2(torch.relu(layer.linear1(x))))
    return found
