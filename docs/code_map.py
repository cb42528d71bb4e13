"""The page `docs/code-map.md`: every file of the package with the first line of its docstring.

Only the source is read, nothing is imported, so a file with an optional dependency is listed as well.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
READ_FIRST = (
    "limner/data/records.py",
    "limner/models/dual_encoder.py",
    "limner/models/dual_path.py",
    "limner/losses/instance.py",
    "limner/training/recipe.py",
    "limner/training/loop.py",
    "limner/inference/trained.py",
    "limner/search/engine.py",
)
# Newcomers have walked them; tests hold that each file and each name in it exists.
WAYS = {
    # all files of a step by itself; `tests/training/test_way_of_an_image.py` follows the calls
    "The way of one image, from its file to a training step": (
        ("limner/data/readers/registry.py", "open_dataset", "lists it as a record; nothing is opened yet"),
        ("limner/training/prepare.py", "prepare", "builds tokenizer, network, losses and the list of images"),
        ("limner/training/loop.py", "train", "goes through stages, epochs and steps"),
        (
            "limner/training/stage.py",
            "EmbeddingStage",
            "makes the batches of an epoch, two ahead, in a thread",
        ),
        ("limner/training/samplers.py", "BatchSource", "asks for its pixels, or for cached features"),
        ("limner/training/pairs.py", "epoch_batches", "draws which image meets which sentence, as numbers"),
        ("limner/training/pictures.py", "Pictures", "keeps resized images and cuts views of them"),
        ("limner/data/transforms.py", "load", "reads and resizes; `random_view` crops and flips"),
        ("limner/data/images.py", "open_rgb", "decodes it, upright and in RGB"),
        ("limner/data/decoding_cost.py", "scale", "lets a JPEG be decoded at a fraction of its size"),
        ("limner/data/heif.py", "is_heif", "says if it is one that needs another decoder"),
        ("limner/training/objective.py", "Objective", "embeds the batch once and sums over the losses"),
        ("limner/models/dual_encoder.py", "DualEncoder", "embeds images and sentences into one space"),
        ("limner/models/image/encoder.py", "ImageEncoder", "makes features of pixels"),
        ("limner/models/image/resnet.py", "ResNet", "is the network in it"),
        ("limner/losses/loss.py", "Loss", "is the base of losses"),
        ("limner/losses/shapes.py", "ShapeChecked", "refuses batches of another shape"),
        ("limner/losses/instance.py", "InstanceLoss", "is one of them"),
        ("limner/training/sparse_rows.py", "join_rows", "joins gradients of rows between processes"),
        ("limner/training/optimiser.py", "set_rate", "sets the rate by which weights are changed"),
        ("limner/training/step_losses.py", "StepLosses", "reads the losses without making a GPU wait"),
    ),
    # all files of it in a reader's order; `tests/server/test_way_of_a_query.py` follows the calls
    "The way of one query, from HTTP to a hit": (
        ("limner/server/routes.py", "Ruled", "finds the rules of the route, which the others go by"),
        (
            "limner/server/request_log.py",
            "RequestLog",
            "gives the request an id, and logs and counts it at its end",
        ),
        ("limner/server/counters.py", "Counters", "has the counters and the times of stages"),
        (
            "limner/server/answer_forms.py",
            "Guarded",
            "and `Compressing` work on the answer, `pictures_that_fit` cuts it",
        ),
        ("limner/server/limits.py", "Bodies", "limits its size, `RateLimit` the requests of its client"),
        ("limner/server/access.py", "Access", "holds token and right against the rules"),
        (
            "limner/server/problems.py",
            "problem",
            "is a refusal; parameters that the route has not are refused",
        ),
        ("limner/server/routes_search.py", "search_routes", "takes the body, and asks the worker"),
        ("limner/server/bodies.py", "RequestModel", "is the base of bodies"),
        ("limner/arguments.py", "several", "takes one or several of what callers of the library give"),
        ("limner/requests.py", "SearchRequest", "is the query from here on, checked"),
        ("limner/query_text.py", "read_query", "reads what its text takes away, weighs and quotes"),
        ("limner/server/audit_routes.py", "note", "gives its facts to the audit log"),
        ("limner/server/batching.py", "Worker", "answers queries that wait together, in the model's thread"),
        ("limner/search/stage_times.py", "timed", "times the stages"),
        ("limner/search/engine.py", "Engine", "takes a snapshot of the store, and ranks its images"),
        ("limner/search/approximate.py", "Approximate", "says whether a graph or lists propose images"),
        ("limner/store/files.py", "StoreFiles", "has the snapshot, read anew if the store has changed"),
        ("limner/store/sqlite_rows.py", "SqliteRows", "says whether it has, and reads its rows"),
        ("limner/store/sqlite_file.py", "connect", "opens the file; `begin` refuses an older one"),
        (
            "limner/search/query_vectors.py",
            "query_vectors",
            "embeds it by an `Encoder`, e.g. that of `inference/trained.py`",
        ),
        ("limner/store/snapshot.py", "Snapshot", "knows the rows that meet the conditions"),
        ("limner/store/vectors.py", "Vectors", "scores images: all, or those that int8 codes leave"),
        ("limner/store/vector_rows.py", "VectorRows", "holds the embeddings"),
        ("limner/search/ranking.py", "Ranking", "re-ranks, groups and cuts"),
        ("limner/search/words.py", "reads_words", "says whether words answer, too; `Words` finds them"),
        ("limner/search/languages.py", "unread_language", "says what the model does not read of the text"),
        ("limner/wire.py", "Hit", "is one of the answer that comes back"),
        (
            "limner/store/uploads.py",
            "has_uploads_name",
            "tells pictures that clients have added, which keep their names",
        ),
    ),
    # its files of these three rooms; `tests/cli/test_way_into_a_store.py` follows the calls
    "The way of a picture into a store, from `limner index`": (
        ("limner/cli/index.py", "index_command", "opens the model and the store, and says how it went"),
        (
            "limner/search/open_source.py",
            "open_source",
            "says what the model is, loads it, and opens or makes the store",
        ),
        ("limner/search/find_pictures.py", "find_pictures", "lists the image files of the folders"),
        ("limner/store/folders.py", "follow_folders", "notes the folders, for `limner store sync`"),
        ("limner/search/index.py", "index_pictures", "goes through them, and commits batches"),
        (
            "limner/search/batch_look.py",
            "Workers",
            "is the workers of `--cluster`; `encode_batch` encodes for all",
        ),
        (
            "limner/search/places.py",
            "plan",
            "says which image each file is: one that has moved, a copy, or one to read",
        ),
        ("limner/store/missing.py", "Away", "says which folders are away, whose places stay"),
        (
            "limner/store/uploads.py",
            "added_as",
            "tells files that clients have added, which are pictures of their own",
        ),
        ("limner/search/sentences.py", "SentenceTable", "lets sentences follow to other paths"),
        ("limner/search/image_look.py", "look_at", "reads one: its bytes, its pixels, when it was taken"),
        ("limner/store/entry.py", "StoredImage", "is what the store keeps of it, beside its embedding"),
        ("limner/store/path.py", "StorePath", "is the store's folder, on a disk or S3"),
        ("limner/store/files.py", "StoreFiles", "is the store: it reads, and lets one change it"),
        ("limner/store/manifest.py", "StoreManifest", "describes it: its model and its layout"),
        ("limner/store/kept_model.py", "keep", "puts the model into a new store"),
        ("limner/store/lock.py", "WriterLock", "lets one process write"),
        ("limner/store/writer.py", "StoreWriter", "checks what is added"),
        ("limner/store/rows.py", "Rows", "is the interface that every engine implements"),
        ("limner/store/digests.py", "row_digest", "makes the digest of a row, by which damage is found"),
        (
            "limner/store/sqlite_rows.py",
            "SqliteRows",
            "is the usual engine",
        ),
        ("limner/store/sqlite_file.py", "connect", "opens its file; `commit` ends a change"),
        ("limner/store/sqlite_transactions.py", "SqliteWriting", "is one change, `SqliteReading` one look"),
        ("limner/store/sound.py", "sound", "compares rows with their digests"),
    ),
}
FOLDERS = ("limner", "benchmarks", "examples")
# The page's scripts have no docstring; the comment at their head is their description.
SCRIPTS = {".js": r"//((?:.*\n//)*.*)", ".css": r"/\*+(.+?)\*/"}


def code_map(note: str) -> str:
    """The page: the files to read first, then one table a folder."""
    parts = [
        note,
        "# Code map",
        "Every file with the first line of its docstring. Imports point one way; "
        "[CONTRIBUTING.md](../CONTRIBUTING.md#how-the-code-is-laid-out) has the order. Tests lie in the same folders "
        "under `tests/`; `tests/reference/` holds the slow twins of the losses and the rankings.",
        "## Read these first",
        "\n".join(
            f"{number}. [{path}](../{path}): {_about(ROOT / path)}"
            for number, path in enumerate(READ_FIRST, start=1)
        ),
    ]
    for title, way in WAYS.items():
        parts += [
            f"## {title}",
            "\n".join(
                f"{number}. [{path.removeprefix('limner/')}](../{path}): `{name}` {about}"
                for number, (path, name, about) in enumerate(way, start=1)
            ),
        ]
    for top in FOLDERS:
        for folder in _folders(ROOT / top):
            name = folder.relative_to(ROOT).as_posix()
            about = _about(folder / "__init__.py") if (folder / "__init__.py").exists() else ""
            rows = "\n".join(
                f"| [{file.name}](../{name}/{file.name}) | {_about(file)} |" for file in _files(folder)
            )
            parts += [f"## {name}/", *filter(None, [about]), f"| file | what it is |\n|---|---|\n{rows}"]
    return "\n\n".join(parts) + "\n"


def _folders(top: Path) -> list[Path]:
    if not top.is_dir():
        return []
    found = [
        folder for folder in (top, *top.rglob("*")) if folder.is_dir() and "__pycache__" not in folder.parts
    ]
    return sorted(folder for folder in found if _files(folder))


def _files(folder: Path) -> list[Path]:
    """Files with a description, without `__init__.py`: its docstring is the folder's."""
    kinds = {".py", *SCRIPTS}
    return sorted(file for file in folder.iterdir() if file.suffix in kinds and file.name != "__init__.py")


def _about(file: Path) -> str:
    """The first line of a file's docstring, or a script's first sentence, as a table's cell."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        # The first line, not the first sentence: names such as `store.json` would end a sentence too early.
        about = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
    else:
        found = re.match(SCRIPTS[file.suffix], text)
        about = re.sub(r"\n//", " ", found[1] if found else "").partition(". ")[0]
    return " ".join(about.split()).replace("|", "\\|").rstrip(".")
