"""Cached gradients: a batch passes the network in chunks, and its losses still compare all of it.

Source: Gao, Zhang, Han and Callan, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", RepL4NLP
2021 (GradCache). Memory for activations is that of one chunk, for a second forward pass.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from limner.errors import SettingsError
from limner.models.dual_encoder import DualEncoder
from limner.training.average import gathers_statistics
from limner.training.optimiser import hold_backbone
from limner.training.recipe import StageSettings


def embed_in_chunks(
    model: DualEncoder,
    images: Tensor,
    token_ids: Tensor,
    phrases: Tensor | None,
    words_below: Tensor | None,
    chunk: int,
) -> tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch dim"]]:
    """The embeddings of a batch of pairs, `chunk` pairs at a time; arguments are those of `DualEncoder.embed_pairs`.

    The three steps of the paper (embed without a graph, the gradient of the losses at the embeddings, each chunk again
    with a graph) are what a checkpoint around each chunk comes to. The backward pass takes the chunks one after the
    other, and each with the random state that it had, so dropout drops the same.
    """

    def embed(*rows: Tensor | None) -> tuple[Tensor, Tensor]:
        found = model.embed_pairs(*rows)  # type: ignore[arg-type]
        return found[0], found[1]

    given = (images, token_ids, phrases, words_below)
    parts: list[tuple[Tensor, Tensor]] = [
        # Not the reentrant kind: it hides the graph from several processes, which then wait for gradients for ever.
        checkpoint(
            embed,
            *(None if rows is None else rows[start : start + chunk] for rows in given),
            use_reentrant=False,
            preserve_rng_state=True,
        )
        for start in range(0, len(token_ids), chunk)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def expect_no_statistics_of_chunks(model: DualEncoder, stage: StageSettings) -> None:
    """Raise `SettingsError` if a batch norm would take the statistics of chunks for those of a batch.

    **Decided**: refused and not approximated. A chunk's statistics are not the batch's, and the second pass would
    gather them twice. Fixed statistics are the same in any chunk. The network is left in the mode of the stage.
    """
    hold_backbone(model.backbone, stage)
    model.train()
    model.eval_parts(stage.frozen)
    # a batch in chunks has no losses over parts, so what compares these never runs
    local = {part for module in model.modules_of_parts().get("local", ()) for part in module.modules()}
    found = next(
        (
            name
            for name, module in model.named_modules()
            if module not in local and gathers_statistics(module)
        ),
        None,
    )
    if found is not None:
        raise SettingsError(
            f"setting 'stages.{stage.name}.chunk': the batch norm '{found}' takes its statistics from the whole batch; "
            "freeze its part, set backbone_statistics=fixed if it is the backbone's, or leave chunk out"
        )
