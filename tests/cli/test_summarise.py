"""`limner summarise`, and what `limner evaluate` says of its log."""

import json
import shutil
from pathlib import Path

from tests.cli.command import Limner


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
