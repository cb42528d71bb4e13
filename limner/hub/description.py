"""The description of a checkpoint as it may be published: without the folders of the machine that trained it.

A description holds where things lay: the dataset, weight files, word vectors, the run that training started from. None
of that changes an embedding, and all of it tells of somebody's machine. Kept is what limner itself knows by name
(`imagenet`, a model of `limner models`, a repository in the hub's cache); everything else that may be a place becomes
`NOT_PUBLISHED`. The recipe can then be read, and not be run again as it stands.
"""

import re
from collections.abc import Mapping
from typing import Any

from limner.data.splits import split_source
from limner.data.terms import WEIGHTS
from limner.inference.hub_runs import is_in_cache
from limner.inference.source import HUB
from limner.models.known import KNOWN
from limner.training.recipe import TOWER

NOT_PUBLISHED = "not-published"
"""Stands where a description named a place on somebody's machine."""

_PLACES = frozenset({"auto_model", "model", "tokenizer", "vectors", "weights"})
"""Settings whose text is a folder, a file or a name of the hub; `model` and `tokenizer` may be sections instead."""

# that of a text path says how its weights begin
_START = ("recipe", "start")

_WORDS = frozenset({"random", "captions", NOT_PUBLISHED}) | WEIGHTS.keys() | {model.name for model in KNOWN}
"""Texts of these settings that are no place."""

_ENDINGS = (".safetensors", ".pth", ".pt", ".bin", ".txt", ".vec", ".gz")
"""Endings of files that settings name; some settings ask for them."""

# a path of any system, or an address of one; ORG/NAME, "text→image" and web addresses are none
_PATH = re.compile(
    r"""(?: ^ | [\s:='"(,;\[] ) (?: ~ | \.{0,2}[/\\](?![/\s]) | [A-Za-z]:[/\\](?!/) | (?: file | s3 | gs | smb )://? )
        | \\\\ | \w\\\w""",
    re.VERBOSE | re.IGNORECASE,
)
# neither part begins with a sign, as `hub_runs.split_name` has it
_HUB_NAME = re.compile(rf"{HUB}\w[\w.-]*/\w[\w.-]*(@[\w.-]+)?", re.ASCII)
_FORMAT = re.compile(r"[a-z0-9][a-z0-9-]*")
# at the end of a source, behind its path
_DRAWN = re.compile(r"(#[a-z]+=[0-9./]+)*")


def published(description: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A description without places, and the settings whose value was replaced, e.g. "data.source".

    The tokenizer's words and the files that build the network stay as they are: they are part of the model.
    """
    replaced: list[str] = []
    # what an imported pair names again as its towers is a name of the hub, and no folder
    source = str((description.get("data") or {}).get("source", ""))
    known = frozenset({source.removeprefix(HUB)} if _is_hub_name(source) else ())
    untouched = {name: description[name] for name in ("tokenizer", "files") if name in description}
    rest = {name: value for name, value in description.items() if name not in untouched}
    found = {
        name: untouched[name] if name in untouched else _without_places(rest[name], (name,), known, replaced)
        for name in description
    }
    return found, sorted(set(replaced))


def published_source(source: str) -> str:
    """A dataset's source without its path: "flickr8k:/data/f8k#seed=1" is "flickr8k:not-published#seed=1"."""
    if _is_hub_name(source):
        return source
    format_name, colon, path = source.partition(":")
    if not colon or _FORMAT.fullmatch(format_name) is None or len(format_name) == 1:
        return source if _is_known(source) else NOT_PUBLISHED
    # only what limner's own reading of a source takes for the drawing of splits: a path may hold a '#', too
    drawn = path[len(split_source(source)[0]) - len(format_name) - 1 :]
    return f"{format_name}:{NOT_PUBLISHED}{drawn if _DRAWN.fullmatch(drawn) else ''}"


def has_place(text: str) -> bool:
    """True for a text with a path in it."""
    return _PATH.search(text) is not None


def _without_places(value: Any, keys: tuple[str, ...], known: frozenset[str], replaced: list[str]) -> Any:
    if isinstance(value, Mapping):
        found = {}
        for name, part in value.items():
            # a name may be a place as well, in what another package has written
            plain = NOT_PUBLISHED if _is_place(str(name), keys[0]) else str(name)
            found[plain] = _without_places(part, (*keys, plain), known, replaced)
        return found
    if isinstance(value, list | tuple):
        return [_without_places(part, keys, known, replaced) for part in value]
    if not isinstance(value, str) or value in known:
        return value
    text = _text(value, keys)
    if text != value:
        replaced.append(".".join(keys))
    return text


def _text(text: str, keys: tuple[str, ...]) -> str:
    if keys == ("data", "source"):
        return published_source(text)
    if keys[-1] in _PLACES or keys == _START:
        if _is_known(text):
            return text
        ending = next((one for one in _ENDINGS if text.lower().endswith(one)), "")
        return (TOWER if text.startswith(TOWER) else "") + NOT_PUBLISHED + ending
    # both name a folder or a file by its last part
    for of_what, before in ((("recipe", "name"), "import of "), (("terms", "name"), "weights from ")):
        if keys == of_what and text.startswith(before):
            return text if _is_known(text.removeprefix(before)) else before + NOT_PUBLISHED
    return NOT_PUBLISHED if _is_place(text, keys[0]) else text


def _is_place(text: str, section: str) -> bool:
    """True for a path; in the settings, for any text with a slash that is no name of the hub."""
    if has_place(text):
        return True
    inside = section in ("recipe", "model", "images", "cross_encoder", "data")
    return inside and ("/" in text or "\\" in text) and not _is_known(text)


def _is_known(text: str) -> bool:
    """True for a name that is the same on every machine."""
    name = text.removeprefix(TOWER)
    if name in _WORDS or name in {NOT_PUBLISHED + ending for ending in _ENDINGS} or _is_hub_name(name):
        return True
    # one slash between plain names, and the hub's cache has it: a folder of this machine could be called so as well
    return _is_hub_name(HUB + name) and is_in_cache(name, "config.json")


def _is_hub_name(text: str) -> bool:
    return _HUB_NAME.fullmatch(text) is not None
