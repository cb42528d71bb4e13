"""Whole configurations by name."""

from limner.recipes.change import change
from limner.recipes.registry import RECIPES, get_recipe

__all__ = ["RECIPES", "change", "get_recipe"]
