"""Relevance, blocked ranking, measures and reports."""
