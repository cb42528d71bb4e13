"""`calibration.json` in a run folder: what makes probabilities of the scores of one of its checkpoints."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from limner.errors import CheckpointError, SettingsError
from limner.evaluation.calibration import Calibration, Reliability
from limner.inference.checkpoint import write_text
from limner.settings import Settings

FILE = "calibration.json"
FORMAT = 1

THRESHOLD = 0.5
"""Probability of the first hit from which on an answer counts as good, unless a user says otherwise."""

Kind = Literal["embedding", "matcher"]
"""Whose scores: the cosine of the embeddings, or `limner.types.Judge.scores` of a picture that was re-ranked."""


class RunCalibration(Settings):
    """The probabilities of one checkpoint's scores, and what they are known from."""

    format: int = FORMAT
    """Version of the file's layout."""
    fingerprint: str = Field(min_length=1)
    """Hex digest of the model whose scores they are."""
    checkpoint: str
    """File name of the model."""
    data: str
    """The dataset, as it was given."""
    split: str
    """The split that they were fitted on."""
    split_fingerprint: str
    """Its digest."""
    images: int = Field(ge=1)
    """Pictures of the split."""
    sentences: int = Field(ge=1)
    """Sentences of the split."""
    reranked: Annotated[int, Field(ge=0)] | Literal["all"]
    """How many of a sentence's first pictures the matcher judged; 0 = there is none."""
    threshold: float = Field(THRESHOLD, ge=0, le=1)
    """A first hit of lower probability is no good match."""
    embedding: Calibration
    """Of the cosine of two embeddings."""
    matcher: Calibration | None = None
    """Of the matcher's scores, where the model has one."""
    reliability: dict[Kind, Reliability]
    """What the first hits' probabilities were worth on the split, by cross-validation."""
    versions: dict[str, str]
    """What it was fitted with."""


def write_calibration(run: Path, calibration: RunCalibration) -> Path:
    """Write the file into the run folder (or beside the checkpoint) atomically. Raises `CheckpointError`."""
    file = _place(run)
    write_text(file, calibration.model_dump_json(indent=2) + "\n")
    return file


def load_calibration(run: Path, fingerprint: str) -> RunCalibration | None:
    """That of the model with this fingerprint: None where there is none or it is of another stage. Else as below."""
    found = read_calibration(run)
    return found if found is not None and found.fingerprint == fingerprint else None


def read_calibration(run: Path) -> RunCalibration | None:
    """The calibration in a run folder, or beside a checkpoint file, of whichever model; None where there is no file.

    Raises `CheckpointError` in one line for one that is damaged or of a later format.
    """
    file = _place(run)
    try:
        values: Any = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({error.strerror}); check your rights") from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"{file}: damaged, not JSON; {_AGAIN}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{file}: damaged, expected a JSON object; {_AGAIN}")
    version = values.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise CheckpointError(
            f"{file}: format {version} is newer than this limner's {FORMAT}; upgrade limner"
        )
    try:
        return RunCalibration.parse(values)
    except SettingsError as error:
        raise CheckpointError(f"{file}: damaged, {error}; {_AGAIN}") from None


_AGAIN = "fit it anew with `limner calibrate`, or remove it"


def _place(run: Path) -> Path:
    return (run.parent if run.is_file() else run) / FILE
