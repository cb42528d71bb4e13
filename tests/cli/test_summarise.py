"""`limner summarise`, and what `limner evaluate` says of its log."""

import json
import shutil
from pathlib import Path

from tests.cli.command import Limner, refused


def test_a_log_that_was_cut_off_is_named(
    limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(toy_run, tmp_path / "run")
    # other tests have evaluated the run
    (run / "evaluations.jsonl").unlink(missing_ok=True)
    evaluate = ("evaluate", run, "--data", f"folder:{pictures}", "--cpu")
    for _ in range(2):
        assert "evaluations.jsonl" not in limner(*evaluate).err
    sound = limner("summarise", run, "--json")
    assert (sound.err, json.loads(sound.out)[0]["problems"]) == ("", [])
    log = run / "evaluations.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[:-200])
    for options in ((), ("--json",), ("--markdown",)):
        cut = limner("summarise", run, *options)
        assert cut.code == 0
        assert cut.err.splitlines() == [
            f"{log}: line 2 was cut off, as by a process that was killed, and is not counted; remove it"
        ]
    assert json.loads(limner("summarise", run, "--json").out)[0]["problems"] == cut.err.splitlines()
    again = limner(*evaluate)
    assert (again.code, f"{log}: line 2 was cut off" in again.err) == (0, True)
    log.write_bytes(whole.replace(b"R@1", b"R@2", 1))
    damaged = limner(*evaluate, "--json")
    assert (
        f"how often this run was evaluated on this split is not known: {log}: line 1 is damaged"
        in damaged.err
    )
    provenance = json.loads(damaged.out)["provenance"]
    assert provenance["evaluations_of_split"] is None
    assert "line 1 is damaged" in provenance["evaluations_problem"]


def test_stages_and_re_ranking_have_rows_of_their_own(
    limner: Limner, reranking_run: Path, pictures: Path, tmp_path: Path
) -> None:
    runs = [shutil.copytree(reranking_run, tmp_path / name) for name in ("one", "two")]
    listing = json.loads((reranking_run / "run.json").read_text(encoding="utf-8"))
    earlier, chosen = listing["stages"][0]["name"], listing["best"].removesuffix(".safetensors")
    for run in runs:
        (run / "evaluations.jsonl").unlink(missing_ok=True)
        evaluate = ("evaluate", run, "--data", f"folder:{pictures}", "--cpu")
        assert limner(*evaluate, "--stage", earlier).code == 0
        assert limner(*evaluate, "--rerank", 3).code == 0
    # the second run's last evaluation is of its first stage, as somebody leaves it who wants that figure again
    assert limner(*evaluate, "--stage", earlier).code == 0
    mixed = json.loads(limner("summarise", *runs, "--json").out)
    assert [(row["stage"], row["reranked"], len(row["runs"])) for row in mixed] == [
        (chosen, 3, 1),
        (earlier, 0, 1),
    ]
    table = limner("summarise", *runs, "--markdown").out
    assert f"| `toy-reranking`, {chosen}, first 3 re-ranked | 1 |" in table
    assert f"| `toy-reranking`, {earlier} | 1 |" in table
    for options, cell in (
        (("--stage", earlier), f"| `toy-reranking`, {earlier} | 2 |"),
        (("--rerank", 3), f"| `toy-reranking`, {chosen}, first 3 re-ranked | 2 |"),
    ):
        printed = limner("summarise", *runs, *options, "--markdown").out
        assert cell in printed
        # a deviation beside each mean: three measures in two directions
        assert printed.count(" ± ") == 6 + 1
        assert limner("summarise", *runs, *options).out.count(" ± ") >= 6
    (row,) = json.loads(limner("summarise", *runs, "--stage", earlier, "--json").out)
    mean, (lower, upper) = row["values"]["text_to_image"]["R@1"][0], row["intervals"]["text_to_image"]["R@1"]
    assert lower <= mean <= upper
    assert (
        f"{mean:.1f} ± 0.0 ({lower:.1f}–{upper:.1f})"
        in limner("summarise", *runs, "--stage", earlier, "--markdown").out
    )
    kept = limner("summarise", *runs, "--rerank", 3, "--save", tmp_path / "kept.jsonl", "--markdown").out
    assert limner("summarise", tmp_path / "kept.jsonl", "--markdown").out == kept
    refused(limner("summarise", *runs, "--stage", "stage-9"), "no evaluation of split 'test' of stage-9")
    refused(limner("summarise", *runs, "--rerank", "some"), "--rerank: expected a whole number or 'all'")
