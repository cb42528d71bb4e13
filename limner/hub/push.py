"""Publish a run on the Hugging Face hub, or write what would be published to a folder.

A repository is made private, and gated where the weights have learnt from data under terms that are not open, before
the first file is uploaded. The hub's own library finds the token; it is handed nowhere, printed or kept.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from limner.arguments import PATH, expect
from limner.errors import SettingsError
from limner.hub.files import CHECKPOINT, EVAL_RESULTS, Published, write_files
from limner.hub.licence import is_hub_licence
from limner.hub.request import Pushed, PushedTerms, PushOptions, PushRequest
from limner.inference.checkpoint import TOKENIZER
from limner.inference.hub_runs import hub_library, refusal

_REPOSITORY = re.compile(r"[\w][\w.-]*/[\w][\w.-]*", re.ASCII)


def push(run: str | Path, target: str | Path, **options: Unpack[PushOptions]) -> Pushed:
    """Upload a run to ORG/NAME of the hub; to a folder if `target` is a path, or if `folder` is given.

    The options are those of `limner.hub.request.PushRequest`. Raises `SettingsError` for terms that were not accepted
    and for what is no target, `CheckpointError` for a run that cannot be published and for what the hub refuses.
    """
    expect(run, PATH, "push: a run's folder")
    expect(target, PATH, "push: ORG/NAME of the hub, or a folder,")
    target = str(target)
    asked = PushRequest.parse(options)
    repository = None if _is_path(target) else target
    if repository is not None and _REPOSITORY.fullmatch(repository) is None:
        raise SettingsError(
            f"{target[:80]}: expected ORG/NAME of the hub, or a folder such as ./{Path(target).name}"
        )
    if repository is None and asked.folder is not None:
        raise SettingsError(f"{target}: a folder already; with --to-folder name the repository ORG/NAME")
    if asked.licence is not None and not is_hub_licence(asked.licence):
        raise SettingsError(
            f"--licence {asked.licence[:40]!r}: expected the hub's name of a licence, such as cc-by-4.0 or apache-2.0"
        )
    to = asked.folder or (None if repository is not None else Path(target).expanduser())
    if to is not None and to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise SettingsError(f"{to}: it exists and is not empty; give a new folder")
    with TemporaryDirectory(prefix="limner-push-") as staging:
        # checked by reading it back before anything is uploaded, or stands in the user's folder
        written = Path(staging) / "run"
        found = write_files(Path(run), written, asked, repository)
        if not asked.dry_run:
            _expect_accepted(found, asked.accept_terms)
        sizes = {name: (written / name).stat().st_size for name in found.files}
        if not asked.dry_run and to is not None:
            _copy(written, to, found.files)
        elif not asked.dry_run and repository is not None:
            _upload(written, repository, found, asked.public)
    return Pushed(
        target=str(to or repository),
        url=f"https://huggingface.co/{repository}" if to is None else None,
        dry_run=asked.dry_run,
        fingerprint=found.fingerprint,
        files=sizes,
        licence=found.licence.licence,
        terms=tuple(
            PushedTerms(name=one.name, licence=one.licence, open=one not in found.licence.restricted)
            for one in found.licence.terms
        ),
        private=not asked.public if to is None else None,
        gated=found.gated,
        replaced=found.replaced,
        picture_digests=found.digests,
        bank=found.bank,
        card=found.card,
    )


def _is_path(target: str) -> bool:
    return (
        target.startswith((".", "~"))
        or target.endswith(("/", "\\"))
        or "\\" in target
        or Path(target).is_absolute()
        or target.count("/") > 1
    )


def _expect_accepted(found: Published, accept_terms: bool) -> None:
    if not found.licence.restricted or accept_terms:
        return
    terms = "; ".join(f"{one.name}: {one.licence}" for one in found.licence.restricted)
    raise SettingsError(
        f"the weights have learnt from data without an open licence ({terms}); read their terms, and give "
        "--accept-terms if they let you pass on what was learnt from them: it is published as 'license: other', gated, "
        "and private unless --public is given"
    )


def _copy(written: Path, to: Path, files: Sequence[str]) -> None:
    try:
        to.mkdir(parents=True, exist_ok=True)
        for name in files:
            (to / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(written / name, to / name)
    except OSError as error:
        raise SettingsError(
            f"{to}: cannot be written ({error.strerror}); check the folder, space and rights"
        ) from None


def _upload(written: Path, repository: str, found: Published, public: bool) -> None:
    api: Any = hub_library().HfApi(library_name="limner")
    try:
        # private until everything is there: nobody is to meet half of it, or weights that are not gated yet
        api.create_repo(repository, repo_type="model", private=True, exist_ok=True)
        api.update_repo_settings(
            repository, repo_type="model", private=True, gated="manual" if found.gated else None
        )
        api.upload_folder(
            repo_id=repository,
            repo_type="model",
            folder_path=str(written),
            commit_message=f"limner push: model {found.fingerprint[:16]}",
            # what an earlier push left and this one has not
            delete_patterns=[f"{EVAL_RESULTS}/*.yaml", TOKENIZER, CHECKPOINT],
        )
        if public:
            api.update_repo_settings(repository, repo_type="model", private=False)
    # HTTP's errors, those of the network, and what the library finds wrong
    except Exception as error:
        raise refusal(repository, error, writes=True) from None
