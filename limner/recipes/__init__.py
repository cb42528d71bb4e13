"""Whole configurations by name."""

from limner.recipes.registry import RECIPES, RecipeEntry, get_recipe

__all__ = ["RECIPES", "RecipeEntry", "get_recipe"]
