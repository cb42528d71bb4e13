"""Trained runs on disk: checkpoints written and read, and a run that encodes pictures and sentences."""

from limner.inference.run import Run, load_run

__all__ = ["Run", "load_run"]
