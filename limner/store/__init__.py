"""The store: a folder that holds the pictures of a search, bound to one model."""
