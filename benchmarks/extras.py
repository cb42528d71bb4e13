"""What each extra of limner costs on the disk: the packages that it brings beside those of a plain installation.

    python -m benchmarks.extras        in an environment in which the extras are installed

An extra's size is that of the packages that a plain installation has not. Extras share packages, so several together
cost less than their sum.
"""

from importlib.metadata import Distribution, PackageNotFoundError, distribution, metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LEFT_OUT = {"dev"}


def main() -> None:
    plain, _ = closure("limner", "")
    print("| extra | packages | MB |\n|---|---|---|")
    print(f"| (none) | {len(plain)} | {sum(map(size_of, plain)):.0f} |")
    for extra in metadata("limner").get_all("Provides-Extra") or ():
        if extra in LEFT_OUT:
            continue
        every, missing = closure("limner", extra)
        own = every - plain
        told = (
            f"not installed here: {', '.join(sorted(missing))}"
            if missing
            else f"{sum(map(size_of, own)):.1f}"
        )
        print(f"| `{extra}` | {len(own)} | {told} |")
        for name in sorted(own, key=size_of, reverse=True)[:3]:
            print(f"|   | {name} | {size_of(name):.1f} |")


def closure(name: str, extra: str) -> tuple[frozenset[str], frozenset[str]]:
    """Names of all packages that one needs with an extra, itself included, and those that are not installed."""
    found, missing = set[str](), set[str]()
    left = [(name, extra)]
    seen = set(left)
    while left:
        one, with_extra = left.pop()
        try:
            installed = distribution(one)
        except PackageNotFoundError:
            missing.add(one)
            continue
        found.add(canonicalize_name(one))
        for needed in requirements(installed, with_extra):
            if needed not in seen:
                seen.add(needed)
                left.append(needed)
    return frozenset(found), frozenset(missing)


def requirements(installed: Distribution, extra: str) -> list[tuple[str, str]]:
    """What a package needs on this machine, plain and for an extra."""
    found = []
    for text in installed.requires or ():
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": extra}):
            found += [(needed.name, one) for one in ("", *needed.extras)]
    return found


def size_of(name: str) -> float:
    """Megabytes of a package's files."""
    installed = distribution(name)
    files = [Path(str(installed.locate_file(file))) for file in installed.files or ()]
    return sum(file.stat().st_size for file in files if file.is_file() and file.suffix != ".pyc") / 1e6


if __name__ == "__main__":
    main()
