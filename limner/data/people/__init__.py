"""Generated pedestrians with descriptions: the data that limner can always make itself."""

from limner.data.people.generate import PeopleSummary, generate_people

__all__ = ["PeopleSummary", "generate_people"]
