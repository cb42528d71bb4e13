"""What to cite, as a page: the tables of `limner.recipes.references`."""

from limner.recipes.references import OF_DATA, OF_LOSS, OF_SYSTEM, software
from limner.recipes.works import REFERENCES


def references_page(note: str) -> str:
    """Every work that limner knows, what it is cited for, and its BibTeX."""
    cited = [
        ("system", OF_SYSTEM),
        ("loss", OF_LOSS),
        ("dataset", OF_DATA),
    ]
    parts = [
        note,
        "# References",
        "What a result made with limner rests on. `limner cite RECIPE` prints the entries of a recipe, "
        "`limner cite RUN` those of a run and of the data that it was trained on. Cite the version of limner, and the "
        "commit if it is no release.",
        "The titles and authors of the four systems are those of their papers. The others were written from what is "
        "known of them and not from the works themselves, so compare an entry with its publisher's page.",
        "## What for",
        "| for | cite |\n|---|---|\n"
        + "\n".join(
            f"| {role} `{name}` | {_links(keys)} |"
            for role, table in cited
            for name, keys in table.items()
            if keys
        ),
        "Networks and their weights are cited by the recipe's names of them: `limner cite`. A dataset of your own has "
        "no entry here.",
        "## Entries",
        f"```bibtex\n{software().bibtex()}\n```",
        *(f"### {entry.key}\n\n```bibtex\n{entry.bibtex()}\n```" for entry in REFERENCES.values()),
    ]
    return "\n\n".join(parts) + "\n"


def _links(keys: tuple[str, ...]) -> str:
    return ", ".join(f"[{_said(key)}](#{key})" for key in keys)


def _said(key: str) -> str:
    entry = REFERENCES[key]
    families = [name.partition(",")[0] for name in entry.authors]
    names = families[0] if len(families) == 1 else " and ".join(families)
    # as the field writes it: two names, or the first and the rest
    if len(families) > 2 or "others" in families:
        names = f"{families[0]} et al."
    return f"{names}, {entry.year}"
