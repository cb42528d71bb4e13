"""The terms of data as a page: what `limner.data.terms` and `limner.models.known` know, and no more."""

from collections.abc import Mapping

from limner.data.terms import TERMS, WEIGHTS, TermsOfUse
from limner.models.known import KNOWN, weight_terms
from limner.recipes import RECIPES

_PEOPLE = {"yes": "a set of people", "some": "among other things", "no": "no", "unknown": "unknown"}


def terms_page(note: str) -> str:
    """Every dataset that limner has a reader for, and the weights that recipes and docs/models.md name."""
    parts = [
        note,
        "# Terms of data and weights",
        "This page says under which terms datasets and pretrained weights may be used, as far as that could be read "
        "where limner is developed. limner brings none of them. **Unknown** means that nothing that was read says it: "
        "it is no permission. The last column says what was read; no page of a set's authors could be opened, "
        "so read the set's own page and licence before you use it. This is no legal advice.",
        "`limner data check` prints a set's line and `limner recipes show` that of the data a recipe is for. A run "
        "keeps those of everything that its weights have learnt from: under `terms` of `run.json` and of "
        "[the checkpoint](files.md#checkpoint), those of a run that it was started from included.",
        "## Datasets",
        _table(TERMS, formats=True),
        "A set that is made of others' pictures has their terms as well, and goes where they go: whether one of them "
        "was withdrawn is unknown here and must be looked up.",
        "## Weights",
        _table(_weights()),
        "The licence of weights says nothing of the pictures that they learnt from. Whether people are in what the "
        "pairs were trained on is unknown here, and likely for pictures of the web.",
        "## What is in it of other sets",
        "A figure on pictures or captions that a tower has seen is no figure on new ones. `limner evaluate` prints "
        "what a run's towers, and the set that it was trained on, had of the set that it ranks: below its table, as "
        "`seen_before` in its report, in `evaluations.jsonl` and on the model card. `limner data check DATA "
        "--pretrained NAME` says the same of a dataset beforehand. Weights in a folder are known by their content "
        "(SHA-256 of `model.safetensors`), whatever the folder is called; any other file is unknown. For a set that is "
        "not named, **unknown** means that the card does not list what it was trained on.",
        _overlaps({**TERMS, **_weights()}),
        "## Your own data",
        "The terms of a dataset in `folder:`, `parquet:` or `webdataset:` are unknown until its owner states them, in "
        "a file `terms.json` in the folder that you name, or beside the annotation file if you name that:",
        '```json\n{"name": "Shop 2026", "licence": "consent of everybody shown, until 2027", "people": "yes"}\n```',
        "It may hold the columns of the first table: "
        + ", ".join(f"`{name}`" for name in TermsOfUse.model_fields if name not in ("trained_on", "overlaps"))
        + ', and `overlaps`, such as `{"flickr8k": "all of its pictures"}`; `people` and `withdrawn` are "yes", "no" '
        'or "unknown", `people` also "some". Without one, the first line '
        "of `LICENSE`, `LICENCE` or the same with `.txt` or `.md` is taken as the licence. In the folder of a "
        "published format, `terms.json` replaces what limner says, for another set in the same form; a licence file "
        "does not, since copies of sets hold licences of somebody's code. Generated people have a `terms.json`: "
        "nobody is shown.",
    ]
    return "\n\n".join(parts) + "\n"


def _weights() -> dict[str, TermsOfUse]:
    return {**WEIGHTS, **{model.name: weight_terms(model.name) for model in KNOWN}}


def _overlaps(rows: Mapping[str, TermsOfUse]) -> str:
    """A row for each set or file of weights and each set that it is known to hold something of, or may."""
    lines = ["| set or weights | trained on | has of | what |", "|---|---|---|---|"]
    for terms in rows.values():
        if terms.trained_on is None and terms.overlaps is None:
            continue
        unknown = {"any": "unknown"} if terms.overlaps is None else {"any": "nothing, by its card"}
        first = f"{terms.name} | {terms.trained_on or '–'}"
        for name, what in (terms.overlaps or unknown).items():
            lines.append(f"| {first} | {TERMS[name].name if name in TERMS else name} | {what} |")
            first = " |"
    return "\n".join(lines)


def _table(rows: Mapping[str, TermsOfUse], *, formats: bool = False) -> str:
    lines = [
        "| set | source | licence | people shown | made of pictures of | withdrawn | checked |"
        if formats
        else "| weights | source | licence | people shown | learnt from | withdrawn | checked |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, terms in rows.items():
        first = f"{terms.name} (`{name}`)" if formats and name != "people" else terms.name
        cells = (
            first,
            terms.source,
            terms.licence,
            _PEOPLE[terms.people],
            ", ".join(terms.composed_of) or "–",
            terms.withdrawn,
            terms.checked,
        )
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def made_for(recipe: str) -> str:
    """The line of docs/recipes.md on the data that a recipe is for."""
    names = [TERMS[name].name for name in RECIPES[recipe].data]
    return f"For: {', '.join(names)} ([terms](terms.md))."
