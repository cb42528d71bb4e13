"""The content of what a training starts from: pretrained files, tokenizer, another run.

Paths say where it lies and may change; with other content at a path, a resumed run would go on to other weights, and a
checkpoint of another training would look like one of this.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from limner.durable import digest_of_values
from limner.models.dual_encoder import DualEncoder


def network_content(model: DualEncoder, *, weights: bool) -> dict[str, dict[str, str]]:
    """By part and file, digests of what a network was built from; to be taken before it learns.

    With `weights` those of the backbone count, under "weights": they are needed where pseudo-classes are made of the
    backbone's features, at each start. All other weights are in the state to resume from.
    """
    found = {
        part: {name: _short(json.dumps(content, sort_keys=True).encode()) for name, content in files.items()}
        for part, files in model.files().items()
    }
    if weights:
        digest = hashlib.sha256()
        for name, tensor in sorted(model.backbone.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            # as bytes: numpy has no bfloat16
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        found.setdefault("backbone", {})["weights"] = digest.hexdigest()[:16]
    return found


def origin_of(identity: Mapping[str, Any]) -> str:
    """One digest of all that a training starts from besides its recipe and data, which are compared by themselves.

    Versions fill in new settings of a recipe; in this digest they would make another training of an old run.
    """
    return digest_of_values({name: identity.get(name) for name in ("tokenizer", "start", "network")})


def _short(content: bytes) -> str:
    # 64 bits are enough to notice another file, and short in a message.
    return hashlib.sha256(content).hexdigest()[:16]
