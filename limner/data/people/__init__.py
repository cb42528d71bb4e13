"""Generated pedestrians with descriptions: the data that limner can always make itself."""
