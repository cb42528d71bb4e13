"""`limner push`: a run on the Hugging Face hub, or in a folder as it would lie there."""

from pathlib import Path
from typing import Annotated, Any

from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.cli.setting_options import with_options
from limner.durable import read_json
from limner.errors import SettingsError
from limner.hub.request import Pushed, PushRequest

app = group("Push.")


@command(app, "push")
@with_options(PushRequest, "folder", "terms", "bank", "reports", "benchmarks", bare=True)
def push_command(
    run: Annotated[Path, "Run folder."],
    target: Annotated[str, "ORG/NAME of the hub; or a folder as ./FOLDER, or with a slash at its end."],
    to_folder: Annotated[
        Path | None, "Write what would be uploaded to this new folder, and upload nothing."
    ] = None,
    terms: Annotated[
        Path | None,
        "A JSON file with the terms of what limner knows none, such as a file of weights: by the name that "
        "run.json has, the fields of a terms.json (docs/terms.md).",
    ] = None,
    with_bank: Annotated[
        bool, "Publish the embeddings of training pictures that a hub correction holds."
    ] = False,
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
    found = push(
        run,
        target,
        folder=to_folder,
        terms=None if terms is None else _stated(terms),
        bank=with_bank,
        reports=report or (),
        benchmarks=benchmark or (),
        **options,
    )
    if found.replaced:
        err.print(f"not published, since they name places of this machine: {', '.join(found.replaced)}")
    if found.dry_run:
        restricted = [f"{one.name}: {one.licence}" for one in found.terms if not one.open]
        if restricted and not options["accept_terms"]:
            err.print(f"to publish it, read these terms and give --accept-terms: {'; '.join(restricted)}")
        out.print_lines(found.card)
    for name, size in found.files.items():
        out.print(f"{size:>12,} bytes  {name}")
    access = "" if found.private is None else f", {'private' if found.private else 'public'}"
    done = "would be published" if found.dry_run else "written" if found.private is None else "published"
    out.print(
        f"{found.target}: {done}, model {found.fingerprint[:16]}, license: {found.licence}{access}"
        f"{', gated' if found.gated else ''}"
    )
    return found


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
