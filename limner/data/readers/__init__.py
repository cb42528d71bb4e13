"""Datasets in the form in which they are published, chosen as FORMAT:PATH.

Readers trust nothing in an annotation file and open no picture: 120,000 pictures take seconds. Whether the
pictures are there and sound is for the doctor, `limner.data.check`.
"""

from limner.data.readers.registry import FORMATS, Reader, open_dataset

__all__ = ["FORMATS", "Reader", "open_dataset"]
