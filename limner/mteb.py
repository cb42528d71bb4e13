"""A model as MTEB measures it: `Encoder` gives embeddings, `Search` the answers of a store, re-ranked.

    import mteb, limner.mteb
    mteb.evaluate(limner.mteb.Encoder("RUN"), mteb.get_tasks(tasks=["Flickr30kT2IRetrieval"]))

Both follow MTEB's protocols and inherit nothing of it, so that importing this module needs neither MTEB nor a network.
MTEB's `recall_at_1` is the share of all right answers that stand first: with five sentences a picture a perfect model
has 0.2 from picture to text. The R@1 of papers is MTEB's `hit_rate_at_1`.
"""

import io
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image

from limner.errors import DataError, SettingsError, install_hint
from limner.evaluation.reranking import First
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.query_vectors import PreparedRequest
from limner.search.sentences import Sentence, SentenceTable
from limner.store.files import StoreFiles, store_for

MEASURES = ("hit_rate_at_1", "hit_rate_at_5", "hit_rate_at_10", "recall_at_1", "ndcg_at_10")
"""The scores of a retrieval task that are printed."""

_KNOWN_FORMATS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}


def library() -> ModuleType:
    """MTEB itself. Raises `SettingsError` that names the extra where it is not installed."""
    try:
        # here, since it is an extra whose import takes seconds
        return import_module("mteb")
    except ImportError as error:
        raise SettingsError(
            f"MTEB is not installed, or lacks a part ({error}); install it with: {install_hint('mteb')}"
        ) from error


class Encoder:
    """Embeddings of a run under MTEB's `EncoderProtocol`; a task ranks by their cosine.

    `model` is a loaded run, its folder or checkpoint. The second argument is there for MTEB's own command line.
    """

    def __init__(
        self, model: TrainedModel | str | Path, revision: str | None = None, *, device: str | None = None
    ) -> None:
        self.model = _loaded(model, device)
        self._meta = _meta(self.model, "")

    @property
    def mteb_model_meta(self) -> Any:
        """MTEB's description of the model; the fingerprint is its revision."""
        return self._meta

    def encode(self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: Any = None, **_: Any) -> np.ndarray:
        """Unit embeddings of batches of texts, of images, or of both.

        Of a text and an image together it is their sum, at length 1. A text without a word that the model knows has the
        embedding of an empty one.
        """
        rows = [self._encode(batch) for batch in inputs]
        return np.concatenate(rows) if rows else np.empty((0, self.model.dim), np.float32)

    def _encode(self, batch: Mapping[str, Any]) -> np.ndarray:
        parts = []
        if "text" in batch:
            parts.append(self.model.encode_texts(list(batch["text"]), check=False))
        if "image" in batch:
            parts.append(self.model.encode_images([_rgb(image) for image in batch["image"]]))
        if not parts:
            raise SettingsError(
                f"a task of {', '.join(sorted(batch)) or 'nothing'}: limner embeds texts and images"
            )
        if len(parts) == 1:
            return np.asarray(parts[0])
        total = np.add(*parts)
        # opposite embeddings sum to 0
        return np.asarray(total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Cosines of all pairs."""
        # MTEB hands over one embedding as a row without its axis
        first, second = (rows.reshape(-1, rows.shape[-1]) for rows in map(_rows, (embeddings1, embeddings2)))
        return first @ second.T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Cosines of rows of the same number."""
        return (_rows(embeddings1) * _rows(embeddings2)).sum(dim=-1)


class Search:
    """The store as it is served, under MTEB's `SearchProtocol`: the embedding's ranking, its first re-ranked.

    The documents of a task are indexed into a store in a temporary folder: pictures as pictures, texts as sentences.
    `rerank` says how many of the first are ordered anew, in place of the recipe's number; 0 = none.
    """

    def __init__(
        self,
        model: TrainedModel | str | Path,
        revision: str | None = None,
        *,
        device: str | None = None,
        rerank: First | None = None,
    ) -> None:
        self.model = _loaded(model, device)
        if rerank:
            self.model.expect_reranker()
        self.rerank = rerank
        self._meta = _meta(self.model, "-search")
        self._folder: Path | None = None
        self._remove: Callable[[], object] = lambda: None
        self._find: Callable[[SearchRequest], Iterator[tuple[str, float]]]
        self._engine: Engine
        self._ids: list[str] = []

    @property
    def mteb_model_meta(self) -> Any:
        """MTEB's description of the model; the fingerprint is its revision."""
        return self._meta

    def index(self, corpus: Any, *, task_metadata: Any, **_: Any) -> None:
        """Make the store of a task's documents; that of the task before is removed.

        Raises `SettingsError` for documents of a text and a picture together, `DataError` for a picture that cannot be
        read.
        """
        kinds = {"text", "image"} & set(
            task_metadata.get_modalities(import_module("mteb.types").PromptType.document)
        )
        if len(kinds) != 1:
            raise SettingsError(
                f"{task_metadata.name}: its documents are text and picture in one; a store holds pictures, and "
                "sentences apart. Measure it without --search"
            )
        self.close()
        self._folder = folder = Path(mkdtemp(prefix="limner-mteb-"))
        # MTEB closes nothing: the folder goes with this object at the latest
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        files = store_for(self.model, self.model.path, folder / "store", regions=self._regions())
        self._ids = [str(one) for one in corpus["id"]]
        if kinds == {"image"}:
            self._add_pictures(corpus, files, folder / "pictures")
        else:
            self._add_sentences(corpus, files)
        self._engine = Engine(files, self.model)

    def _regions(self) -> bool | None:
        # a recipe may leave re-ranking out, and the caller ask for it
        return True if self.rerank else None

    def _add_pictures(self, corpus: Any, files: StoreFiles, folder: Path) -> None:
        folder.mkdir()
        paths = []
        for number, row in enumerate(_undecoded(corpus)):
            paths.append(_write_picture(row["image"], folder, f"{number:08d}"))
        report = index_pictures(self.model, files, paths)
        if report.skipped:
            path, reason = report.skipped[0]
            raise DataError(
                f"document '{self._ids[int(Path(path).stem)]}': its picture cannot be read ({reason})"
            )
        self._find = self._pictures

    def _add_sentences(self, corpus: Any, files: StoreFiles) -> None:
        titles = corpus["title"] if "title" in corpus.column_names else [""] * len(corpus)
        # as MTEB hands documents to an encoder
        texts = [
            f"{title} {text}".strip() if title else text.strip()
            for title, text in zip(titles, corpus["text"], strict=True)
        ]
        # a store holds a sentence once, and a task may have it for several pictures
        self._documents: dict[str, list[str]] = {}
        for one, text in zip(self._ids, texts, strict=True):
            self._documents.setdefault(text, []).append(one)
        SentenceTable(files).index(self.model, [Sentence(text) for text in self._documents])
        self._find = self._sentences

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, Sequence[str]] | None = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """The first `top_k` documents of each query, with scores that fall from rank to rank.

        With `top_ranked`, a query's documents are those that it names. Raises `SettingsError` before `index`.
        """
        if self._folder is None:
            raise SettingsError("index the documents before the search")
        found: dict[str, dict[str, float]] = {}
        for name, query in self._queries(queries, len(self._ids) if top_ranked is not None else top_k):
            wanted = None if top_ranked is None else set(top_ranked.get(name, ()))
            ranked = [pair for pair in self._find(query) if wanted is None or pair[0] in wanted]
            found[name] = dict(ranked[:top_k])
        return found

    def _queries(self, queries: Any, k: int) -> Iterator[tuple[str, SearchRequest]]:
        """Each query by its id."""
        for row in queries:
            text, image = row.get("text"), row.get("image")
            if isinstance(text, str) and image is None and not self._is_read(text):
                # the server refuses such a query; a task counts it, so it has the ranking of an empty sentence
                vector = self.model.encode_texts([text], check=False)[0]
                yield str(row["id"]), PreparedRequest(vector=vector, k=k)
            else:
                picture = None if image is None else _rgb(image)
                reranks = self.rerank if picture is None else None
                yield str(row["id"]), SearchRequest(text=text, image=picture, k=k, rerank=reranks)

    def _is_read(self, text: str) -> bool:
        try:
            self.model.check_query(text)
        except DataError:
            return False
        return True

    def _pictures(self, query: SearchRequest) -> Iterator[tuple[str, float]]:
        hits = self._engine.answer(query).hits
        # re-ranked hits stand in the order of their confidence, above the others, and MTEB sorts by score
        reranked = any(hit.confidence is not None for hit in hits)
        for hit in hits:
            assert hit.path is not None
            score = float(len(hits) - hit.rank) if reranked else hit.score
            # documents of equal bytes are one picture of the store
            yield from ((self._ids[int(path.stem)], score) for path in (hit.path, *hit.copies))

    def _sentences(self, query: SearchRequest) -> Iterator[tuple[str, float]]:
        for sentence in self._engine.sentences(query):
            for one in self._documents[sentence.text]:
                yield one, sentence.score

    def close(self) -> None:
        """Remove the store."""
        self._remove()
        self._folder = None


def find_tasks(names: Sequence[str]) -> list[Any]:
    """MTEB's tasks of these names. Raises `SettingsError` for one that it does not have."""
    found = library()
    try:
        return list(found.get_tasks(tasks=list(names)))
    # its own error has the nearest name in it
    except KeyError as error:
        said = " ".join(str(error.args[0]).split()).removeprefix("KeyError: ")
        raise SettingsError(f"MTEB {found.__version__}: {said}") from None


def measure(model: Encoder | Search, tasks: Sequence[Any]) -> list[Any]:
    """MTEB's results of a model on tasks, one a task; nothing is read from or written to its cache of results.

    Raises `SettingsError` for a task that the model cannot take, before any is measured, and `DataError` for one whose
    data cannot be had.
    """
    found = library()
    for task in tasks:
        expect_fit(model, task)
    import_module("datasets").disable_progress_bars()
    results = []
    for task in tasks:
        try:
            results += found.evaluate(
                model, [task], cache=None, co2_tracker=False, show_progress_bar=False
            ).task_results
        # what the hub's client and the network below it raise: all of them are OSErrors
        except OSError as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise DataError(
                f"{task.metadata.name}: its data cannot be had ({reason}); fetch it once where there is a network"
            ) from None
    return results


def expect_fit(model: Encoder | Search, task: Any) -> None:
    """Raise `SettingsError` for a task that a model cannot take."""
    name = task.metadata.name
    if others := sorted(set(task.metadata.modalities) - {"text", "image"}):
        raise SettingsError(f"{name}: it is of {', '.join(others)}; limner embeds texts and images")
    retrieval = import_module("mteb.abstasks.retrieval").AbsTaskRetrieval
    if isinstance(model, Search) and not isinstance(task, retrieval):
        raise SettingsError(
            f"{name}: a '{task.metadata.type}' is no retrieval; measure it without --search (limner.mteb.Encoder)"
        )


def _loaded(model: TrainedModel | str | Path, device: str | None) -> TrainedModel:
    # before seconds of loading
    library()
    return model if isinstance(model, TrainedModel) else load_model(model, device=device)


def _meta(model: TrainedModel, ending: str) -> Any:
    """MTEB's description of a run."""
    library()
    return import_module("mteb.models").ModelMeta(
        loader=None,
        # a folder's name and no path, since that tells of a machine
        name=f"limner/{model.path.resolve().parent.name}{ending}",
        revision=model.fingerprint[:40],
        release_date=None,
        languages=None,
        n_parameters=None,
        memory_usage_mb=None,
        max_tokens=None,
        embed_dim=model.dim,
        license=None,
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch"],
        similarity_fn_name="cosine",
        use_instructions=False,
        # None = not said; MTEB knows its own names of training sets only
        training_datasets=None,
        modalities=["text", "image"],
    )


def _rows(embeddings: Any) -> torch.Tensor:
    return torch.as_tensor(embeddings, dtype=torch.float32)


def _rgb(image: Any) -> Image.Image:
    """An image of a task, a Pillow image or a tensor of channels first, as Pillow has it."""
    if isinstance(image, Image.Image):
        return image
    pixels = np.asarray(image)
    if np.issubdtype(pixels.dtype, np.floating):
        pixels = np.clip(pixels * 255, 0, 255).round()
    return Image.fromarray(np.ascontiguousarray(pixels.astype(np.uint8).transpose(1, 2, 0)))


def _undecoded(corpus: Any) -> Iterable[Mapping[str, Any]]:
    """Rows with the files of their images as they are: a JPEG that is decoded and written again is another one."""
    datasets = import_module("datasets")
    if isinstance(corpus.features["image"], datasets.Image):
        rows: Iterable[Mapping[str, Any]] = corpus.select_columns(["image"]).cast_column(
            "image", datasets.Image(decode=False)
        )
        return rows
    return corpus  # type: ignore[no-any-return]


def _write_picture(image: Any, folder: Path, name: str) -> Path:
    """Write a document's picture to a file of its own."""
    if isinstance(image, Mapping):
        content = image["bytes"] if image.get("bytes") else Path(image["path"]).read_bytes()
        with Image.open(io.BytesIO(content)) as opened:
            ending = _KNOWN_FORMATS.get(opened.format or "")
            if ending is not None:
                path = folder / f"{name}.{ending}"
                path.write_bytes(content)
                return path
            opened.load()
            image = opened.copy()
    path = folder / f"{name}.png"
    _rgb(image).save(path)
    return path
