"""`limner push`: a run on the Hugging Face hub, or in a folder as it would lie there."""

from pathlib import Path
from typing import Annotated, Any

from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.cli.setting_options import with_options
from limner.documented import Result
from limner.durable import read_json
from limner.errors import SettingsError
from limner.hub.request import PushRequest

app = group("Push.")


class PushedTerms(Result):
    """A set, or weights, that published weights have learnt from."""

    name: str
    """Its name."""
    licence: str
    """Its licence or conditions."""
    open: bool
    """True if it states a licence that lets the weights be passed on."""


class Pushed(Result):
    """The result of `limner push`."""

    target: str
    """The repository ORG/NAME, or the folder."""
    url: str | None
    """The page of the repository; null for a folder."""
    dry_run: bool
    """True if nothing was uploaded or written."""
    fingerprint: str
    """Digest of the model, the same before and after."""
    files: dict[str, int]
    """The files, and the bytes of each."""
    licence: str
    """The licence as the hub calls it; "other" where no open one covers everything."""
    terms: tuple[PushedTerms, ...]
    """Sets and weights that the weights have learnt from."""
    private: bool | None
    """Seen by its owner alone; null for a folder."""
    gated: bool
    """Access on request."""
    replaced: tuple[str, ...]
    """Settings of the description that named a place of this machine, and are "not-published" now."""
    picture_digests: int
    """Training pictures whose digests are published."""
    bank: int
    """Training pictures and sentences whose embeddings are published."""
    card: str
    """The model card."""


@command(app, "push")
@with_options(PushRequest, "terms", "reports", "benchmarks", bare=True)
def push_command(
    run: Annotated[Path, "Run folder."],
    target: Annotated[str, "ORG/NAME of the hub; or a folder as ./FOLDER, or with a slash at its end."],
    terms: Annotated[
        Path | None,
        "A JSON file with the terms of what limner knows none, such as a file of weights: by the name that "
        "run.json has, the fields of a terms.json (docs/terms.md).",
    ] = None,
    report: Annotated[
        list[Path] | None,
        "A report of `limner evaluate --report`, for its intervals on the card; may be repeated.",
    ] = None,
    benchmark: Annotated[
        list[str] | None,
        "A benchmark dataset of the hub whose leaderboard the test results are for (.eval_results).",
        "[PROTOCOL=]ORG/NAME[:TASK]",
    ] = None,
    **options: Any,
) -> Pushed:
    """Publish a run on the Hugging Face hub, or write what would be published to a folder.

    Only the chosen checkpoint goes, without folders of this machine, with a model card and its results.
    `limner.load("hf:ORG/NAME")` and every command that takes RUN read it.
    """
    from limner.hub.push import push

    err.print(f"reading {run}")
    stated = {} if terms is None else _stated(terms)
    found = push(run, target, terms=stated, reports=report or (), benchmarks=benchmark or (), **options)
    written = found.published
    if written.replaced:
        err.print(f"not published, since they name places of this machine: {', '.join(written.replaced)}")
    if options["dry_run"]:
        if written.licence.restricted and not options["accept_terms"]:
            listed = "; ".join(f"{one.name}: {one.licence}" for one in written.licence.restricted)
            err.print(f"to publish it, read these terms and give --accept-terms: {listed}")
        out.print(written.card)
    for name, size in found.sizes.items():
        out.print(f"{size:>12,} bytes  {name}")
    access = "" if found.private is None else f", {'private' if found.private else 'public'}"
    done = "would be published" if options["dry_run"] else "written" if found.private is None else "published"
    out.print(
        f"{found.target}: {done}, model {written.fingerprint[:16]}, license: {written.licence.licence}"
        f"{access}{', gated' if written.gated else ''}"
    )
    url = None if found.private is None else f"https://huggingface.co/{found.target}"
    return Pushed(
        target=found.target,
        url=url,
        dry_run=options["dry_run"],
        fingerprint=written.fingerprint,
        files=found.sizes,
        licence=written.licence.licence,
        terms=tuple(
            PushedTerms(name=one.name, licence=one.licence, open=one not in written.licence.restricted)
            for one in written.licence.terms
        ),
        private=found.private,
        gated=written.gated,
        replaced=written.replaced,
        picture_digests=written.digests,
        bank=written.bank,
        card=written.card,
    )


def _stated(file: Path) -> dict[str, Any]:
    try:
        found = read_json(file)
        if not isinstance(found, dict):
            raise ValueError("no JSON object")
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"--terms {file}: cannot be read ({error}); expected a JSON object by name"
        ) from None
    return found
