"""The model card of a published run: README.md with the hub's header, made of what the run itself says.

Nothing on it is known from elsewhere: what a run does not say is "unknown" on its card.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from limner.data.terms import UNKNOWN, TermsOfUse
from limner.errors import LimnerError
from limner.hub.evaluations import DIRECTIONS, Evaluation, model_index
from limner.hub.licence import OTHER, Licence, hub_licence, set_of
from limner.models.known import KNOWN
from limner.recipes.references import OF_DATA, cited_by, software
from limner.recipes.works import REFERENCES
from limner.training.recipe import Recipe

REPOSITORY = "ORG/NAME"
"""Stands for the repository's name on a card that is written to a folder."""

INTENDED = (
    "research on image-text retrieval and person search, with data under whose terms that is allowed",
    "collections of pictures in which people are not the point, or have agreed: archives, products, animals, one's own "
    "photographs",
    "finding pictures of people who agreed to it and can withdraw",
)
REFUSED = (
    "identifying or following people who did not agree and do not know, in public places, at work, at school or at "
    "home, by whomever",
    "decisions about a person by a hit alone: arrest, refusal of entry, dismissal",
    "sorting people by ethnicity, faith, health, sexual orientation, opinion or feelings",
    "stores of pictures that were scraped, or whose set was withdrawn",
)
"""Uses that limner is meant for, and those it is not: docs/privacy.md says the same, which a test compares."""

_PEOPLE = {"yes": "a set of people", "some": "among other things", "no": "no", "unknown": "unknown"}


@dataclass(frozen=True)
class CardFacts:
    """The facts that a card is made of.

    - `description`: the published one; `cited`: the recipe as it was trained, for what it cites.
    - `digests`, `bank`: training pictures whose digests, and whose embeddings, the checkpoint holds.
    - `parameters`: weights; `dim`, `side`, `words`, `tokens`: width of the embedding, height and width of an image,
      tokens of a sentence that are read, size of the tokenizer.
    """

    description: Mapping[str, Any]
    cited: Mapping[str, Any]
    fingerprint: str
    licence: Licence
    evaluations: Sequence[Evaluation]
    gated: bool
    digests: int
    bank: int
    parameters: int
    dim: int
    side: tuple[int, int]
    words: int
    tokens: int
    learns_words: bool
    repository: str | None = None
    finished: bool = True


def header(facts: CardFacts) -> dict[str, Any]:
    """The header of the card, as the hub reads it."""
    described, licence = facts.description, facts.licence
    found: dict[str, Any] = {"license": licence.licence}
    if licence.licence == OTHER:
        found |= {"license_name": "terms-of-the-training-data", "license_link": "LICENSE.md"}
    found |= {
        "library_name": "limner",
        "pipeline_tag": "feature-extraction",
        "tags": ["limner", "image-text-retrieval", "cross-modal-retrieval", *_tags(facts)],
    }
    if (of_set := set_of(described)) not in (None, "people"):
        found["datasets"] = [of_set]
    known = {model.name for model in KNOWN}
    if bases := [terms.name for terms in licence.terms if terms.name in known]:
        found["base_model"] = bases
    if facts.gated:
        found |= {
            "extra_gated_prompt": "The weights have learnt from data whose terms bind you, too (LICENSE.md). Do not "
            "ask for access unless you keep to them, and to the uses that the card refuses.",
            "extra_gated_fields": {
                "Affiliation": "text",
                "What I want to use this model for": "text",
                "I keep to the terms of the data that the weights have learnt from": "checkbox",
                "I will not identify or follow people who did not agree to it": "checkbox",
            },
        }
    if results := model_index(
        str(described["recipe"].get("name", "limner")), facts.evaluations, of_set == "people"
    ):
        found["model-index"] = results
    return found


def card(facts: CardFacts) -> str:
    """The whole README.md."""
    return f"---\n{to_yaml(header(facts))}---\n\n" + "\n\n".join(_sections(facts)) + "\n"


def licence_file(licence: Licence) -> str:
    """LICENSE.md: the terms of everything that the weights have learnt from."""
    parts = [
        "# Terms of these weights",
        "The weights have learnt from the sets and weights below. Where one of them states no open licence, its terms "
        "bind whoever uses these weights; **unknown** is no permission. Read the set's own page and licence first. "
        "This is no legal advice.",
        _terms_table(licence.terms),
    ]
    if not licence.restricted:
        parts.insert(2, "All of them state an open licence.")
    return "\n\n".join(parts) + "\n"


def to_yaml(values: Any) -> str:
    """YAML as the hub reads it, keys in their order. Raises `CheckpointError` without the extra."""
    from limner.inference.hub_runs import hub_library

    # PyYAML comes with the hub's library
    hub_library()
    import yaml

    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    return text


def _sections(facts: CardFacts) -> list[str]:
    described = facts.description
    name = str(described["recipe"].get("name", "unknown"))
    repository = facts.repository or REPOSITORY
    people = any(terms.people == "yes" for terms in facts.licence.terms)
    what = "descriptions of people and their pictures" if people else "sentences and pictures"
    return [
        f"# {_plain(name)}",
        f"Encodes {what} into one space of {facts.dim} numbers, so that each finds the other. System "
        f"`{_plain(described['system'])}`, {facts.parameters / 1e6:.1f} million weights, pictures of {facts.side[0]} × "
        f"{facts.side[1]} pixels, sentences of at most {facts.words} tokens. Model `{facts.fingerprint[:16]}`.",
        "## Use",
        f'```python\nimport limner\n\nmodel = limner.load("hf:{repository}")\nmodel.encode_texts(["a red coat"])\n'
        'model.encode_images(["picture.jpg"])\n```',
        f'```text\nlimner index hf:{repository} STORE PICTURES\nlimner search STORE "a red coat"\n```',
        "Reading it runs no code of this repository: `model.safetensors` holds weights, tokenizer and settings; "
        "`run.json` names it; `config.json` repeats the settings for whoever looks.",
        *(
            f"Beside limner it needs {_plain(package)}, for its {_plain(name)}."
            for name, package in (described.get("packages") or {}).items()
            # a loss is of the training alone
            if name.startswith("encoder ")
        ),
        *_training(facts),
        *_results(facts),
        *_pictures(facts),
        *_uses(facts),
        "## Citation",
        "```bibtex\n" + "\n\n".join(_works(facts)) + "\n```",
    ]


def _training(facts: CardFacts) -> list[str]:
    described, data = facts.description, facts.description.get("data") or {}
    selected = described.get("selected")
    rows = [
        ("recipe", described["recipe"].get("name")),
        ("data", data.get("source")),
        ("training split, fingerprint", data.get("train")),
        ("selection split, fingerprint", data.get("val")),
        ("training pictures, sentences", _pair(data.get("train_images"), data.get("train_sentences"))),
        ("groups in training", data.get("groups")),
        ("pictures of the selection split", data.get("val_images")),
        ("seed", described.get("seed")),
        ("limner", _version(described.get("versions") or {})),
    ]
    parts = ["## Training", _table(("", ""), [(key, _shown(value)) for key, value in rows])]
    if selected is None:
        parts.append(
            "A pretrained pair as it was published, made a run by `limner import`: nothing was trained or chosen here."
        )
    elif selected.get("split") is None:
        parts.append(
            f"Stage `{_plain(selected.get('stage'))}`, epoch {_shown(selected.get('epoch'))}: the last one, which no "
            "split has chosen."
        )
    else:
        parts.append(
            f"Stage `{_plain(selected.get('stage'))}`, epoch {_shown(selected.get('epoch'))}, was chosen on split "
            f"`{_plain(selected['split'])}` by {_plain(selected.get('by') or 'rsum')} "
            f"({_number(selected.get('score'))}). Training was never given the test split."
        )
    if not facts.finished:
        parts.append("The training had not come to its end when this was published.")
    parts += [
        "## Terms of what it has learnt from",
        _terms_table(facts.licence.terms),
        "**Unknown** is no permission, and the terms of these sets go where the weights go."
        if facts.licence.restricted
        else "All of them state an open licence.",
    ]
    return parts


def _results(facts: CardFacts) -> list[str]:
    parts = ["## Results"]
    if not facts.evaluations:
        return [*parts, "No evaluation of this checkpoint is known."]
    parts.append(
        "The protocol says by which rules, the split's fingerprint which pictures and sentences were ranked."
        + (
            " Generated people lie in the form of a published set and are measured by its protocol: no figure is of "
            "that set."
            if set_of(facts.description) == "people"
            else ""
        )
    )
    for one in facts.evaluations:
        names = list(dict.fromkeys(name for values in one.values.values() for name in values))
        rows = []
        for direction, shown in DIRECTIONS.items():
            ends = one.intervals.get(direction, {})
            cells = [
                _number(one.values[direction].get(name))
                + (f" ({_number(ends[name][0])} to {_number(ends[name][1])})" if name in ends else "")
                for name in names
            ]
            rows.append((shown, *cells))
        reranked = f", the first {one.reranked} re-ranked" if one.reranked else ""
        parts += [
            f"Split `{_plain(one.split)}`, protocol {_plain(one.protocol)}{reranked}"
            + (f", {one.date[:10]}" if one.date else "")
            + f". Arithmetic: {_shown(one.precision)}. Split fingerprint `{_shown(one.split_fingerprint)[:16]}`.",
            _table(("", *names), rows),
            f"{_looks(one.looks)} One run, of one seed ({_shown(facts.description.get('seed'))}). "
            + (
                "In brackets: 95 % intervals over queries."
                if any(one.intervals.values())
                else "No intervals."
            ),
            *(f"Seen before by {_plain(line)}." for line in one.seen_before),
        ]
    return parts


def _looks(looks: int | None) -> str:
    if looks is None:
        return "How often this run was measured on this split is not known."
    times = "once" if looks == 1 else f"{looks} times"
    return f"This run was measured on this split {times} in all."


def _pictures(facts: CardFacts) -> list[str]:
    rows = []
    if facts.digests:
        rows.append(
            f"Eight bytes of the digest of each of {facts.digests} pictures that trained it or chose its epoch: "
            "whoever has a picture's file can tell whether it was among them. By them limner refuses to measure on "
            "pictures that it was trained on."
        )
    else:
        rows.append("No digests of training pictures: it does not say which pictures it has learnt from.")
    if facts.bank:
        rows.append(
            f"Embeddings of {facts.bank} training pictures and sentences, without names (hub correction). With one, "
            "pictures like it, and of the same person, are found."
        )
    if facts.learns_words:
        rows.append(
            f"{facts.tokens} words or pieces of the training sentences; names are among them if they had any."
        )
    rows.append("Nobody can promise that nothing of a picture can be got out of weights.")
    return ["## What it holds of its training pictures", "\n".join(f"- {row}" for row in rows)]


def _uses(facts: CardFacts) -> list[str]:
    return [
        "## Intended and refused uses",
        "Meant for:",
        "\n".join(f"- {use}" for use in INTENDED),
        "Not meant for, and refused:",
        "\n".join(f"- {use}" for use in REFUSED),
        "A hit is a picture to look at, never a proof. Which people are found worse has not been measured.",
    ]


def _works(facts: CardFacts) -> list[str]:
    works = [software()]
    # one's own pictures cite nothing
    format_name = set_of(facts.description) or "folder"
    try:
        works += [work for _, work in cited_by(Recipe.parse(facts.cited), (format_name,))]
    # an imported pair has no recipe; that of another version may not be read
    except LimnerError:
        works += [REFERENCES[key] for key in OF_DATA.get(format_name, ())]
    return [work.bibtex() for work in works]


def _terms_table(terms: Sequence[TermsOfUse]) -> str:
    rows = [
        (
            one.name,
            one.licence,
            "" if hub_licence(one) is None else "yes",
            _PEOPLE[one.people],
            ", ".join(one.composed_of) or "–",
            one.trained_on or "–",
            one.source,
        )
        for one in terms
    ]
    head = (
        "learnt from",
        "licence",
        "open",
        "people shown",
        "made of pictures of",
        "itself trained on",
        "source",
    )
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: object) -> str:
    """Text that cannot be read as a table's border, as HTML or as a code mark: a set's terms are anybody's words."""
    shown = " ".join(str(text).split())
    return shown.replace("|", "/").replace("<", "&lt;").replace("`", "'")


def _shown(value: object) -> str:
    return UNKNOWN if value is None else str(value)


def _pair(first: object, second: object) -> str:
    return f"{_shown(first)}, {_shown(second)}"


def _number(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else "–"


def _version(versions: Mapping[str, Any]) -> str:
    commit = f", commit {versions['commit'][:12]}" if versions.get("commit") else ""
    return f"{versions.get('limner', UNKNOWN)}{commit}"


def _tags(facts: CardFacts) -> list[str]:
    people = any(terms.people == "yes" for terms in facts.licence.terms)
    return [str(facts.description["system"]), *(["text-based-person-search"] if people else [])]
