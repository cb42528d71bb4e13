"""Trained runs on disk: checkpoints written and read, and a run that encodes pictures and sentences."""

from limner.inference.trained import TrainedModel, load_model

__all__ = ["TrainedModel", "load_model"]
