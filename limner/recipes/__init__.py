"""Whole configurations by name."""
