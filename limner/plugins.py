"""Losses, encoders, measures, readers and recipes of other packages, found through their entry points.

A package names them in its `pyproject.toml`, and limner finds them where it is installed beside it (docs/extend.md):

    [project.entry-points."limner.readers"]
    lines = "their_package.readers:read_lines"

Entry points are looked for only when limner itself does not have a name, or when everything is listed. So a package
cannot replace what limner has.
"""

import difflib
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from limner.errors import SettingsError

Group = Literal["limner.losses", "limner.encoders", "limner.measures", "limner.readers", "limner.recipes"]
"""The groups of entry points that limner reads."""


@dataclass(frozen=True)
class Plugin:
    """One entry point of another package; nothing of that package has been imported yet."""

    entry: EntryPoint

    @property
    def name(self) -> str:
        """The name that recipes and commands use."""
        return self.entry.name

    @property
    def package(self) -> str:
        """The package that it comes from, with its version."""
        found = self.entry.dist
        return "an unnamed package" if found is None else f"{found.name} {found.version}"

    def load(self) -> Any:
        """Import the object that it names. Raises `SettingsError`, whatever is wrong in that package."""
        try:
            return self.entry.load()
        except Exception as error:  # the code is somebody else's and may raise anything
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise SettingsError(
                f"{self.entry.group}: '{self.name}' of {self.package} ({self.entry.value}) cannot be loaded ({why}); "
                "mend or remove that package"
            ) from error


def plugins(group: Group) -> dict[str, Plugin]:
    """Map names to all that installed packages add to a group. Raises `SettingsError` for a name given twice."""
    # cached: the settings of a recipe are parsed dozens of times in one command, and each look at the disk takes 20 ms.
    # By sys.path, because a test or a notebook may add a package to it later
    return _installed(group, tuple(sys.path))


@cache
def _installed(group: Group, _path: tuple[str, ...]) -> dict[str, Plugin]:
    found: dict[str, Plugin] = {}
    # sorted: the order of installed packages differs from machine to machine
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        plugin = Plugin(entry)
        other = found.setdefault(plugin.name, plugin)
        # a package that is on the path twice, e.g. as a checkout and installed, is still one package and no conflict
        if other.package != plugin.package or other.entry.value != entry.value:
            raise SettingsError(
                f"{group}: both {other.package} and {plugin.package} add '{plugin.name}'; remove one of them"
            )
    return found


def find_plugin(group: Group, name: str) -> Plugin | None:
    """Find the plugin of a name that limner itself does not have; None if no package adds it."""
    # called after limner's own names: a scan takes tens of milliseconds, which `limner --help` does not have
    return plugins(group).get(name)


def package_of(group: Group, name: str, found: type) -> str | None:
    """The package that adds a name, with its version, or the module of a program's own class; None for limner's."""
    if found.__module__.partition(".")[0] == "limner":
        return None
    plugin = find_plugin(group, name)
    return found.__module__ if plugin is None else plugin.package


def nearest(group: Group, name: str, own: Collection[str]) -> str:
    """End a message about an unknown name: with the nearest known one, else with all, also those of plugins."""
    known = [*own, *(other for other in plugins(group) if other not in own)]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
