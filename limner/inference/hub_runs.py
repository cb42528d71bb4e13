"""Runs on the Hugging Face hub: `hf:ORG/NAME` or `hf:ORG/NAME@REVISION` in the place of a run folder.

Fetched are `run.json` and the checkpoint that it names, into the hub's own cache, and nothing else: a repository may
hold what it likes, no code of it is run and no pickle of it is read. What is in the cache is used without a network,
with HF_HUB_OFFLINE=1, too.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from limner.durable import read_json
from limner.errors import CheckpointError, SettingsError, install_hint
from limner.inference.source import HUB, OF_A_MODEL, RUN_FILE, SENTENCE_TRANSFORMER, kind_of

# what the hub takes; its library raises an error of its own for others, at each of its functions
_PART = r"\w[\w.-]{0,95}(?<=\w)"
_NAME = re.compile(
    rf"(?![^@]*(?:--|\.\.))(?P<repo>{_PART}/{_PART}(?<!\.git))(?:@(?P<revision>[^@\s]+))?", re.ASCII
)
_SECONDS = 3
"""How long an answer of the hub is waited for before what the cache has is taken."""

_FILE = re.compile(r"[\w][\w.-]*\.safetensors", re.ASCII)


def local_run(run: str | Path) -> Path:
    """The folder of a run: the one that is given, or that of a run of the hub in the hub's cache.

    Raises `CheckpointError` for a repository that cannot be had, or that holds no run of limner.
    """
    if kind_of(run) != "hub":
        return Path(run)
    name = Path(run).as_posix()
    found = find_hub_run(name)
    if found is None:
        repo, _ = split_name(name)
        raise CheckpointError(
            f"{name}: holds no run of limner (there is no {RUN_FILE}); a pretrained pair is made one by "
            f"`limner import {HUB}{repo} RUN`"
        )
    return found


def find_hub_run(name: str) -> Path | None:
    """The folder of a run of the hub in its cache, fetched where it is not there; None for a repository without one.

    Raises `CheckpointError` for a repository that cannot be had, `SettingsError` for what is no name of one.
    """
    repo, revision = split_name(name)
    with in_reach(name):
        listing = _fetched(name, repo, RUN_FILE, revision)
        if listing is None:
            return None
        file = _checkpoint_of(name, listing)
        # of the commit whose run.json this is: the branch may have moved meanwhile
        checkpoint = _fetched(name, repo, file, listing.parent.name)
    if checkpoint is None:
        raise CheckpointError(
            f"{name}: its {RUN_FILE} names {file}, which is not there; tell those who pushed it, or take another "
            f"revision ({HUB}{repo}@REVISION)"
        )
    return listing.parent


def run_of_name(name: str) -> Path | None:
    """The folder of a run where a command takes a pretrained pair of the hub, too; None for a name of such a pair.

    A pair that is in the cache costs no question to the network. Raises as `find_hub_run`.
    """
    if is_in_cache(name, "config.json") and not is_in_cache(name, RUN_FILE):
        return None
    return find_hub_run(name)


@contextmanager
def in_reach(name: str) -> Iterator[None]:
    """Ask once whether the hub can be reached; if not, what is done within takes the cache's files without asking.

    Else the library asks six times for each file that is not there, which takes 24 s, or minutes for a whole model.
    Raises `CheckpointError` where it cannot be reached and the cache has nothing of the model.
    """
    hub_library()
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE
    # not for the rest of the process, which may have a network again
    constants.HF_HUB_OFFLINE = offline or not _answers(constants.ENDPOINT)
    try:
        if constants.HF_HUB_OFFLINE and not any(is_in_cache(name, file) for file in (RUN_FILE, *OF_A_MODEL)):
            raise refusal(name, OSError())
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline


def _answers(address: str) -> bool:
    """True if the hub answers anything at all."""
    heard: list[object] = []

    def ask() -> None:
        # the errors of its library are of several kinds, and all say the same here
        with suppress(Exception):
            heard.append(hub_library().get_session().head(address, timeout=_SECONDS))

    # a thread: to look a name up may take longer, and has no limit
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_SECONDS)
    return bool(heard)


def is_in_cache(name: str, file: str) -> bool:
    """True if the hub's cache has this file of a repository; nothing is asked of the network."""
    try:
        # transformers' own import takes seconds; this library is what it asks
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return False
    # some models of sentence-transformers have no ORG
    short = name.startswith(SENTENCE_TRANSFORMER)
    repo, revision = (name.removeprefix(SENTENCE_TRANSFORMER), None) if short else split_name(name)
    return isinstance(try_to_load_from_cache(repo, file, revision=revision), str)


def split_name(name: str) -> tuple[str, str | None]:
    """ORG/NAME and the revision, if any. Raises `SettingsError` for what is no name of the hub."""
    found = _NAME.fullmatch(name.removeprefix(HUB))
    if found is None:
        raise SettingsError(f"{name[:80]!r}: expected hf:ORG/NAME or hf:ORG/NAME@REVISION")
    return found["repo"], found["revision"]


def hub_library() -> Any:
    """The library of the hub. Raises `CheckpointError` that names the extra where it is not installed."""
    try:
        # here: it is an extra, and its import takes time
        import huggingface_hub
    except ImportError:
        raise CheckpointError(
            f"the Hugging Face hub needs the huggingface_hub library; install it with: {install_hint('hub')}"
        ) from None
    return huggingface_hub


def refusal(name: str, error: BaseException, *, writes: bool = False) -> CheckpointError:
    """The one line for what the hub refused, with the next step.

    It is made of the kind of the error alone: the library's own text may quote addresses and headers. `writes` says
    that it was not to be fetched, but uploaded.
    """
    kinds = {one.__name__ for one in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    repo = name.removeprefix(HUB).removeprefix(SENTENCE_TRANSFORMER).partition("@")[0]
    fetch = (
        f"fetch it where there is a network (hf download {repo} --local-dir FOLDER) and give FOLDER in its place; "
        "`limner demo` needs neither"
    )
    login = "log in with `hf auth login`, or set HF_TOKEN"
    if "GatedRepoError" in kinds:
        what = f"is gated: ask for access on its page (huggingface.co/{name.removeprefix(HUB)}), then {login}"
    elif "RepositoryNotFoundError" in kinds:
        what = (
            f"no such repository on the hub, or a private one; check the name, and {login} for a private one"
        )
    elif "RevisionNotFoundError" in kinds:
        what = "no such revision; give a branch, a tag or a commit that its page lists"
    elif "LocalTokenNotFoundError" in kinds or status == 401:
        what = f"the hub knows nobody here; {login}"
    elif status == 403:
        what = f"the hub forbids it to this account; {login} with an account or a token that may do this"
    elif "HFValidationError" in kinds:
        what = "is no name of a repository; expected ORG/NAME of letters, digits, '.', '_' and '-'"
    elif os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        what = (
            "HF_HUB_OFFLINE is set; unset it, or write a folder such as ./FOLDER"
            if writes
            else f"is not in the local cache, and HF_HUB_OFFLINE is set; {fetch}"
        )
    elif isinstance(status, int):
        what = f"the hub answered {status}; try again later"
    elif writes:
        what = "the hub cannot be reached; try again, or write a folder such as ./FOLDER"
    else:
        what = f"is not in the local cache, and the hub cannot be reached; {fetch}"
    return CheckpointError(f"{name}: {what}")


def _fetched(name: str, repo: str, file: str, revision: str | None) -> Path | None:
    """A file of a repository in the cache; None if the repository has none of this name."""
    library = hub_library()
    try:
        found = library.hf_hub_download(repo, file, revision=revision)
    # the library and those below it raise many kinds: HTTP's, those of the network, OSError
    except Exception as error:
        kinds = {one.__name__ for one in type(error).__mro__}
        if "EntryNotFoundError" in kinds and "LocalEntryNotFoundError" not in kinds:
            return None
        # the cause says more than "not in the cache", such as that the repository is gated
        cause = error.__cause__ if "LocalEntryNotFoundError" in kinds and error.__cause__ else error
        raise refusal(name, cause) from None
    return Path(found)


def _checkpoint_of(name: str, listing: Path) -> str:
    try:
        file = read_json(listing)["best"]
    except (OSError, ValueError, KeyError, TypeError):
        file = None
    # the name of a file beside it and nothing else: it is somebody else's text
    if not isinstance(file, str) or _FILE.fullmatch(file) is None:
        raise CheckpointError(
            f"{name}: its {RUN_FILE} is damaged, or not of limner; tell those who pushed it"
        )
    return file
