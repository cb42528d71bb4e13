"""The search server: a store and its model over HTTP, with a page to search on."""
