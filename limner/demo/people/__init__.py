"""Generated pedestrians with descriptions: the data that limner can always make itself."""

from limner.demo.people.generate import OPTIONS_FILE, PeopleSummary, generate_people

__all__ = ["OPTIONS_FILE", "PeopleSummary", "generate_people"]
