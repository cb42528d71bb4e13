"""Trained runs on disk: checkpoints written and read, and a run that encodes pictures and sentences."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limner.inference.trained import TrainedModel, load_model

__all__ = ["TrainedModel", "load_model"]


def __getattr__(name: str) -> Any:
    # when first asked for: search by an exported tower reads a calibration from here, and does without torch
    if name not in __all__:
        raise AttributeError(f"module 'limner.inference' has no attribute '{name}'")
    from limner.inference import trained

    return getattr(trained, name)
