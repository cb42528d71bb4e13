"""Steps a second of a training on a GPU, against a recorded step alone (`benchmarks.recorded_step`).

    python -m benchmarks.trainer_speed RUN [--stage stage-1] [--precision fp32]

RUN is of `limner train dual-path-released-flickr8k … --cuda-graphs`, on the GPU of results/recorded_step.json. Claim:
at least 80 % of the steps that the recorded step of the same stage and arithmetic makes. The pairs a second of the
run's metrics.jsonl count, as the median of its epochs without the first tenth, in which views are still cached.
"""

import argparse
import json
import statistics
from pathlib import Path

from benchmarks.measuring import RESULTS, SHORT, cannot_run, write

BATCH = 32


def main() -> None:
    if SHORT:
        cannot_run("needs a run that was trained on a GPU")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--stage", default="stage-1")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    given = parser.parse_args()
    lines = (given.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    pairs = [row["pairs_per_second"] for row in map(json.loads, lines) if row.get("stage") == given.stage]
    steps = statistics.median(pairs[len(pairs) // 10 :]) / BATCH
    recorded = json.loads((RESULTS / "recorded_step.json").read_text(encoding="utf-8"))
    alone = recorded["groups"][f"{given.stage}, {given.precision}"]["recorded"]["per_second"]
    print(f"{steps:.1f} steps a second, {steps / alone:.0%} of the recorded step")
    write(
        "trainer_speed",
        {
            "reference": f"{given.stage}, {given.precision}, recorded",
            "device": recorded["device"],
            "epochs": len(pairs),
            "steps_per_second": steps,
            "recorded_steps_per_second": alone,
            # the run may be read on another
            "machine": recorded["machine"],
        },
    )


if __name__ == "__main__":
    main()
