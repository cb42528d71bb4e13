"""Generated pedestrians with descriptions, lies and near-twins: the data that limner can always make itself.

A package that stands by itself: it needs `limner.data`, `limner.errors` and `limner.durable` of limner, and only the
command line imports it, by the names below.
"""

from limner.people.generate import OPTIONS_FILE, PeopleSummary, generate_people
from limner.people.lies import draw_lies
from limner.people.lies.draw import DIGEST as LIES_DIGEST
from limner.people.lies.draw import VERSION as LIES_VERSION
from limner.people.triplets import TripletsSummary, draw_triplets
from limner.people.truth import truth_of

__all__ = [
    "LIES_DIGEST",
    "LIES_VERSION",
    "OPTIONS_FILE",
    "PeopleSummary",
    "TripletsSummary",
    "draw_lies",
    "draw_triplets",
    "generate_people",
    "truth_of",
]
