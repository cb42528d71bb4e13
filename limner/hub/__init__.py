"""A run as a repository of the Hugging Face hub: what is published of it, and its model card."""
