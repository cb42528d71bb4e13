"""The losses by the papers' names; each file is one published loss."""
