"""Export of a model to formats of other programs."""
