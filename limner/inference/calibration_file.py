"""The file of a run's calibration, as searches read it: it needs no network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from limner.documented import Result
from limner.durable import from_json, opened, sealed
from limner.errors import CheckpointError, SettingsError
from limner.evaluation.calibration import AROUND, Calibration, Reliability, why_unusable
from limner.settings import Settings

FILE = "calibration.json"
FORMAT = 4
"""Version of the file's layout; 1 to 3 were never released."""


THRESHOLD = 0.5
"""Lowest probability of the first hit of a good answer, by default."""

Kind = Literal["embedding", "reranker"]
"""The kind of score: the cosine of the embeddings, or `limner.types.Reranker.scores` of a re-ranked image."""


Question = Literal["described", "fits"]
"""The question that a probability answers: is a hit the very picture or identity that is described, or does it fit?"""


class RunCalibration(Settings):
    """The probabilities of one checkpoint's scores, and the data of their fit."""

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
    """How many of a sentence's first images the reranker scored; 0 = the model has none."""
    question: Question = "described"
    """The question: right is the very picture or identity that is described, or also what fits the text."""
    threshold: float = Field(THRESHOLD, ge=0, le=1)
    """A first hit of lower probability is no good match."""
    embedding: Calibration
    """Of the cosine of two embeddings."""
    reranker: Calibration | None = None
    """Of the reranker's scores, where the model has one."""
    reliability: dict[Kind, Reliability]
    """Worth of the first hits' probabilities on the split, by cross-validation."""
    unusable: dict[Kind, str] = Field(default_factory=dict)
    """Why the threshold is not used for answers by this kind of score, where it is not (`why_unusable`)."""
    versions: dict[str, str]
    """Versions that it was fitted with."""
    store: str | None = None
    """Id of the store that it is for; None = it is a run's."""

    def threshold_for(self, *, reranked: bool) -> float | None:
        """The threshold for an answer; None if it is not used."""
        # that of the first hit's kind of score: the other kind's may be of no use
        kind: Kind = "reranker" if reranked and self.reranker is not None else "embedding"
        return None if kind in self.unusable else self.threshold

    @property
    def around(self) -> int:
        """Number of images that a reranker must read for the probabilities: as many as when they were fitted."""
        if self.reranker is None:
            return 0
        # otherwise the first hit's probability rose as `rerank` fell: 0.97 at 1 where it is 0.23 now
        return AROUND if self.reranked == "all" else min(AROUND, self.reranked)

    @property
    def remark(self) -> str | None:
        """One line that says that a threshold is not used, and why; None if it is."""
        if not self.unusable:
            return None
        reasons = "; ".join(f"by {kind} {reason}" for kind, reason in self.unusable.items())
        return (
            f"searches will not say 'no good match': {reasons}, fewer than half; choose a lower --threshold, or train "
            "the model further"
        )


class CalibrationReport(Result):
    """The reliability of a run's probabilities of first hits."""

    split: str
    """The split that was measured, or "store"."""
    pictures: int
    """Pictures that were searched."""
    question: Question
    """The question that they answer."""
    threshold: float
    """Probability from which a first hit counts as good."""
    reliability: dict[Kind, Reliability]
    """By kind of score, how far its probabilities can be trusted."""
    unusable: dict[Kind, str]
    """By kind of score, why searches do not say "no good match" by the threshold, where they do not."""
    file: str | None
    """The file that was written; null with `--check`."""


def calibration_text(calibration: RunCalibration) -> str:
    """The text of a calibration's file, with its digest."""
    return sealed(calibration.model_dump(mode="json"))


def load_calibration(run: Path, fingerprint: str) -> RunCalibration | None:
    """The calibration of the model with this fingerprint; None without a file, and for one of another stage."""
    found = read_calibration(run)
    # scores of another stage are spread otherwise: its probabilities would be wrong and look right
    return found if found is not None and found.fingerprint == fingerprint else None


def read_calibration(run: Path) -> RunCalibration | None:
    """The calibration in a run folder, or beside a checkpoint file, of any model; None if the file does not exist.

    Raises `CheckpointError` in one line for one that is damaged or of a later format.
    """
    file = calibration_place(run)
    try:
        text = file.read_text(encoding="utf-8")
    # a path below a file raises NotADirectoryError; there is no calibration there either
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read ({error.strerror}); check your rights") from None
    except UnicodeDecodeError:
        text = ""  # which is called damaged
    return parse_calibration(text, file)


def parse_calibration(text: str, file: object) -> RunCalibration:
    """Read the text of such a file, which errors name. Raises `CheckpointError` as `read_calibration` does."""
    try:
        values: Any = from_json(text)
    except ValueError:
        raise CheckpointError(f"{file}: damaged, not JSON; {_AGAIN}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{file}: damaged, expected a JSON object; {_AGAIN}")
    # before the fields: a later format may have some that this one calls damaged
    version = values.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise CheckpointError(
            f"{file}: format {version} is newer than this limner's {FORMAT}; upgrade limner"
        )
    if isinstance(version, int) and version < FORMAT:
        raise CheckpointError(f"{file}: format {version} is older than this limner's {FORMAT}; {_AGAIN}")
    try:
        return RunCalibration.parse(opened(values))
    except (SettingsError, ValueError) as error:
        raise CheckpointError(f"{file}: damaged, {error}; {_AGAIN}") from None


def unusable_kinds(measured: Mapping[Kind, Reliability], threshold: float) -> dict[Kind, str]:
    """The kinds of score whose answers cannot have the threshold, and why."""
    reasons = {kind: why_unusable(one, threshold) for kind, one in measured.items()}
    return {kind: reason for kind, reason in reasons.items() if reason is not None}


_AGAIN = "fit it anew with `limner calibrate`, or remove it"


def calibration_place(run: Path) -> Path:
    """The file of a run's calibration."""
    # a run may be given as its folder or as a checkpoint in it, and both must find the same file
    return (run.parent if run.is_file() else run) / FILE
