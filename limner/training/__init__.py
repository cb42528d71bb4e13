"""Stages, feature caches, mining and the training loop."""
