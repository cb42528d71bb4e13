"""Index images into a store and search it."""
