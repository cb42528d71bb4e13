"""The set of `limner bench`: pictures of generated people, each with a true sentence and a lie.

Imported by nothing but the command line; `limner.data.minimal_pairs` reads the folders that it writes.
"""

from limner.people.lies.draw import DIGEST, NAME, PEOPLE, VERSION, draw_lies

__all__ = ["DIGEST", "NAME", "PEOPLE", "VERSION", "draw_lies"]
