"""Generated triplets: a person, a sentence about one change, and the near-twin that has it."""

from limner.people.triplets.draw import TripletsSummary, draw_triplets

__all__ = ["TripletsSummary", "draw_triplets"]
"""The names that other packages use."""
