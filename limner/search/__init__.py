"""Index pictures into a store and search it."""
