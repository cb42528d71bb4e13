"""Find pictures by their description and descriptions by their picture."""
