"""Whole configurations by name."""

from limner.recipes.registry import RECIPES, RecipeEntry, all_recipes, get_recipe

__all__ = ["RECIPES", "RecipeEntry", "all_recipes", "get_recipe"]
