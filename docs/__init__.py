"""The generated pages of the documentation: `python -m docs.generate` writes them."""
