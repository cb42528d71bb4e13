"""Whole configurations by name."""

from limner.recipes.registry import RECIPES, change, get_recipe

__all__ = ["RECIPES", "change", "get_recipe"]
