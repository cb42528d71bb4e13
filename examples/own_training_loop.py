"""limner's losses in a training loop of one's own: features that are already there, two linear layers on top.

python examples/own_training_loop.py
"""

import numpy as np
import torch
from torch import Tensor, nn

import limner
from limner.losses import InstanceLoss, RankingLoss

PAIRS, DIM = 64, 32


def recall(images: Tensor, texts: Tensor) -> float:
    """Text→image R@1 of embeddings that belong together row by row."""
    i, t = (nn.functional.normalize(rows, dim=1).detach().numpy() for rows in (images, texts))
    results = limner.Results(np.arange(PAIRS), np.arange(PAIRS), images=i, sentences=t)
    return limner.evaluate(results).text_to_image["R@1"]


torch.manual_seed(0)
shared = torch.randn(PAIRS, 10)  # what image and sentence of a pair have in common
images = torch.cat([shared, torch.randn(PAIRS, 90)], dim=1)  # e.g. a CNN's
texts = torch.cat([torch.randn(PAIRS, 40), shared], dim=1)  # e.g. a language model's
groups = torch.arange(PAIRS)  # rows of one group match
image_layer, text_layer = nn.Linear(100, DIM), nn.Linear(50, DIM)
instance, ranking = InstanceLoss(DIM, PAIRS, scale=10.0), RankingLoss(margin=0.2)
learning = nn.ModuleList([image_layer, text_layer, instance])  # the loss's classifier learns, too
optimiser = torch.optim.AdamW(learning.parameters(), lr=0.01)
for step in range(61):
    i, t = image_layer(images), text_layer(texts)
    if step % 20 == 0:
        print(f"step {step}: text→image R@1 {recall(i, t):.1f}")
    loss = instance(i, groups) + instance(t, groups) + ranking(i, t, groups)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
