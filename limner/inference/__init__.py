"""Trained runs on disk: checkpoints written and read, and a run that encodes pictures and sentences."""
