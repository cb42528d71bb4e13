"""How well a run finds the captions that were exchanged: area under the ROC curve of `limner data check --with RUN`.

    python -m benchmarks.suspicious_captions DATA RUN [RUN …] [--share 0.1 0.5] [--seeds 3]

DATA is `FORMAT:PATH` without `#noise`. A share of its training captions changes places between groups, and each run
ranks all training captions as the command does. Printed are the area under the curve of a wrong caption's loss against
a right one's, the share of wrong ones among the first as many as are wrong, and precision and recall of "wrong with a
probability of a half or more": mean ± deviation over the seeds of the noise. A run may have learnt from other pictures
or, given as `RUN@SHARE/SEED`, from these very captions; it is then measured on that noise alone.
"""

import argparse
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import rankdata

import limner
from limner.inference.suspicious_captions import suspicious_captions


@dataclass(frozen=True)
class Found:
    """How well wrong captions were found, each in 0 … 1."""

    area: float
    among_first: float
    precision: float
    recall: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--share", type=float, nargs="+", default=[0.1, 0.5])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for named in options.runs:
        run, _, noise = named.partition("@")
        noises = (
            [noise]
            if noise
            else [f"{share}/{seed}" for share in options.share for seed in range(options.seeds)]
        )
        by_share: dict[str, list[Found]] = {}
        for one in noises:
            by_share.setdefault(one.split("/")[0], []).append(measured(options.data, run, one))
        for share, found in by_share.items():
            print(
                f"{run}, {share} exchanged: "
                + " · ".join(
                    f"{label} {np.mean(values):.3f} ± {np.std(values):.3f}"
                    for label, values in (
                        ("AUC", [each.area for each in found]),
                        ("among the first", [each.among_first for each in found]),
                        ("precision", [each.precision for each in found]),
                        ("recall", [each.recall for each in found]),
                    )
                ),
                flush=True,
            )


def measured(data: str, run: str, noise: str) -> Found:
    """Rank the training captions of a dataset with noise (`SHARE/SEED`) by a run."""
    right = limner.open_dataset(data).split("train").records
    noisy = limner.open_dataset(f"{data}#noise={noise}").split("train")
    own = {record.image: set(record.sentences) for record in right}
    found = suspicious_captions(limner.load(run), noisy)
    # One that changes places with a caption of the same words is right still.
    wrong = np.array([one.caption not in own[one.file] for one in found])
    return judged(np.array([one.loss for one in found]), np.array([one.right for one in found]), wrong)


def judged(losses: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> Found:
    """The measures of captions, most suspicious first, of which some are `wrong`."""
    count = int(wrong.sum())
    # The Mann-Whitney statistic: a tie counts half.
    ranks = rankdata(losses)[wrong].sum() - count * (count + 1) / 2
    called = right <= 0.5
    return Found(
        float(ranks / (count * (len(wrong) - count))),
        float(wrong[:count].mean()),
        float(wrong[called].mean()) if called.any() else 0.0,
        float(called[wrong].mean()),
    )


if __name__ == "__main__":
    main()
