"""K-means pseudo-classes: fewer classes than groups (dual-path TOMM 2020, section 6.4, Table 5)."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from limner.errors import SettingsError


def pseudo_classes(
    features: Float[Tensor, "images channels"], classes: int, *, seed: int, iterations: int = 50
) -> Int64[Tensor, " images"]:
    """Cluster pooled features into `classes` and return each picture's, 0 … classes − 1.

    Lloyd's algorithm in Euclidean distance from random distinct pictures; an emptied cluster restarts at the
    picture farthest from its centre. Stops when nothing moves. Raises `SettingsError` when there are more classes
    than pictures.
    """
    # Distinct images start the clusters, so there cannot be more of them.
    if classes > len(features):
        raise SettingsError(f"setting 'classes': {classes} pseudo-classes of only {len(features)} pictures")
    # A generator of its own: clusters must not depend on what was drawn before.
    chance = torch.Generator().manual_seed(seed)
    centres = features[torch.randperm(len(features), generator=chance)[:classes]].clone()
    # −1 is no cluster, so the first round never counts as still.
    assigned = torch.full((len(features),), -1)
    # A bound on the time: each round compares all images with all centres.
    for _ in range(iterations):
        distance, nearest = _nearest(features, centres)
        if torch.equal(nearest, assigned):
            break
        assigned = nearest
        counts = torch.bincount(assigned, minlength=classes)
        centres.zero_().index_add_(0, assigned, features)
        # An empty cluster would be NaN here; it gets a new centre below.
        centres /= counts.clamp(min=1)[:, None]
        empty = (counts == 0).nonzero().flatten()
        if len(empty):
            # Distances are those to the centres before this round, which is good enough to find a far image.
            centres[empty] = features[distance.topk(len(empty)).indices]
    return assigned


def _nearest(
    features: Float[Tensor, "images channels"], centres: Float[Tensor, "classes channels"]
) -> tuple[Float[Tensor, " images"], Int64[Tensor, " images"]]:
    distances, nearest = [], []
    # Blocks: 113,287 images × 10,000 classes (Table 5) would be 4.5 GB of distances.
    for block in torch.split(features, 4096):
        found = torch.cdist(block, centres).min(dim=1)
        distances.append(found.values)
        nearest.append(found.indices)
    return torch.cat(distances), torch.cat(nearest)
