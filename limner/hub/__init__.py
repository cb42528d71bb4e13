"""A run as a repository of the Hugging Face hub: what is published of it, and its model card."""

from limner.hub.push import Pushed, push

__all__ = ["Pushed", "push"]
