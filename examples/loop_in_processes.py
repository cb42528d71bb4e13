"""Losses that remember, in several processes: torchrun --nproc-per-node 2 examples/loop_in_processes.py"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from limner.losses import CMCELoss, RankingLoss
from limner.losses.sextuple import EmbeddingQueue


def of_all(own: Tensor) -> Tensor:
    """The rows of all processes, in one order everywhere: each has to remember the same."""
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own.detach())
    return torch.cat(found)


if not dist.is_torchelastic_launched():
    raise SystemExit(__doc__)
dist.init_process_group("gloo")
torch.manual_seed(0)  # the same data and weights in each process
images, texts, groups = torch.randn(64, 90), torch.randn(64, 50), torch.arange(64)  # rows of one group match
layers = nn.ModuleList([nn.Linear(90, 32), nn.Linear(50, 32)])
cmce, ranking, queue = CMCELoss(32, 64), RankingLoss(margin=0.2), EmbeddingQueue(32, 32)
cmce.fill(layers[0](images), groups, layers[1](texts), groups)  # before the first step
optimiser = torch.optim.AdamW(layers.parameters(), lr=0.01)
for _ in range(41):
    own = torch.randperm(64)[:32].chunk(dist.get_world_size())[dist.get_rank()]
    i, t, g = layers[0](images[own]), layers[1](texts[own]), groups[own]
    loss = cmce(i, t, g) + ranking(i, t, g, extra_images=queue.images, extra_image_groups=queue.image_numbers)
    optimiser.zero_grad()
    loss.backward()
    for weight in layers.parameters():  # as DistributedDataParallel does
        dist.all_reduce(weight.grad.div_(dist.get_world_size()))
    optimiser.step()
    i, t, g = map(of_all, (i, t, g))  # behind the step: it must not see what it changes
    cmce.update(i, t, g)
    queue.push(nn.functional.normalize(i), nn.functional.normalize(t), g, g)
print(f"process {dist.get_rank()}: loss {loss:.3f}, remembered {cmce.images.sum() + queue.images.sum():.6f}")
dist.barrier()  # nobody leaves while another still waits for it
dist.destroy_process_group()
