import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from limner.data.images import decode
from limner.data.records import Dataset
from limner.errors import DataError, SettingsError
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.mteb import Encoder, Search, find_tasks, measure

mteb = pytest.importorskip("mteb")

from datasets import Dataset as Rows  # noqa: E402
from mteb import models  # noqa: E402
from mteb.abstasks.retrieval import AbsTaskRetrieval  # noqa: E402
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData  # noqa: E402
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402


def task(dataset: Dataset, category: str, **changes: Any) -> Any:
    """A retrieval task in memory, text→image ("t2i") or image→text ("i2t"), of a dataset's pictures and sentences."""
    described = TaskMetadata(
        name=f"Toys{category.upper()}",
        description="Coloured shapes.",
        reference=None,
        dataset={"path": "none", "revision": "1"},
        type="Any2AnyRetrieval",
        category=category,
        modalities=["text", "image"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        prompt=None,
    )
    images = {
        "id": [f"picture-{number}" for number in range(len(dataset))],
        "image": [Image.fromarray(decode(record.image)) for record in dataset.records],
    }
    said = [
        (f"sentence-{number}-{which}", sentence, f"picture-{number}")
        for number, record in enumerate(dataset.records)
        for which, sentence in enumerate(record.sentences)
    ]
    sentences = {"id": [one[0] for one in said], "text": [one[1] for one in said]}
    right: dict[str, dict[str, int]] = {}
    for sentence, _, picture in said:
        query, document = (sentence, picture) if category == "t2i" else (picture, sentence)
        right.setdefault(query, {})[document] = 1
    queries, corpus = (sentences, images) if category == "t2i" else (images, sentences)
    data = {
        "queries": Rows.from_dict(queries),
        "corpus": Rows.from_dict(corpus),
        "relevant_docs": right,
        "top_ranked": None,
        **changes,
    }

    class InMemory(AbsTaskRetrieval):  # type: ignore[misc, unused-ignore]
        metadata = described

        def load_data(self, num_proc: int | None = None, **_: Any) -> None:
            self.dataset = {"default": {"test": cast(RetrievalSplitData, data)}}
            self.data_loaded = True

    return InMemory()


def scores(result: Any) -> dict[str, Any]:
    found: dict[str, Any] = result.scores["test"][0]
    return found


@pytest.fixture(scope="module")
def toy(toy_run: Path) -> TrainedModel:
    return load_model(toy_run, device="cpu", precision="fp32")


def expected(model: TrainedModel, dataset: Dataset) -> tuple[float, float]:
    """R@1 image→text and text→image of the embeddings, counted by hand."""
    images = model.encode_images([record.image for record in dataset.records])
    sentences = [sentence for record in dataset.records for sentence in record.sentences]
    owners = [number for number, record in enumerate(dataset.records) for _ in record.sentences]
    similar = images @ model.encode_texts(sentences, check=False).T
    to_text = [owners[best] == number for number, best in enumerate(similar.argmax(axis=1))]
    to_image = [best == owner for owner, best in zip(owners, similar.argmax(axis=0), strict=True)]
    return float(np.mean(to_text)), float(np.mean(to_image))


@pytest.mark.parametrize("kind", [Encoder, Search])
def test_hit_rate_is_the_r_at_1_of_papers(kind: Any, toy: TrainedModel, toys: Dataset) -> None:
    model = kind(toy)
    to_text, to_image = expected(toy, toys)
    assert 0 < to_text < 1
    found = [scores(one) for one in measure(model, [task(toys, "i2t"), task(toys, "t2i")])]
    assert [one["hit_rate_at_1"] for one in found] == pytest.approx([to_text, to_image], abs=1e-5)
    # two sentences a picture: MTEB's recall of one that is right is a half
    assert found[0]["recall_at_1"] == pytest.approx(to_text / 2, abs=1e-5)
    assert found[1]["recall_at_1"] == pytest.approx(to_image, abs=1e-5)


class Perfect(Encoder):
    """Embeddings that are equal for a picture and its sentences."""

    def __init__(self, model: TrainedModel, dataset: Dataset) -> None:
        super().__init__(model)
        pictures = [decode(record.image).tobytes() for record in dataset.records]
        self.owner: dict[Any, int] = {content: number for number, content in enumerate(pictures)}
        for number, record in enumerate(dataset.records):
            self.owner |= dict.fromkeys(record.sentences, number)

    def _encode(self, batch: Any) -> np.ndarray:
        contents = batch["text"] if "text" in batch else [np.array(one).tobytes() for one in batch["image"]]
        return np.eye(len(self.owner), dtype=np.float32)[[self.owner[one] for one in contents]]


def test_recall_of_a_perfect_model_is_a_fifth(toy: TrainedModel, toys: Dataset) -> None:
    """What the command prints and docs/leaderboards.md says of five sentences a picture."""
    records = [
        dataclasses.replace(record, sentences=tuple(f"{record.group} {number}" for number in range(5)))
        for record in toys.records
    ]
    five = dataclasses.replace(toys, records=tuple(records))
    to_text, to_image = map(scores, measure(Perfect(toy, five), [task(five, "i2t"), task(five, "t2i")]))
    assert (to_text["recall_at_1"], to_text["hit_rate_at_1"]) == (0.2, 1.0)
    assert (to_image["recall_at_1"], to_image["hit_rate_at_1"]) == (1.0, 1.0)


def test_both_follow_the_protocols(toy: TrainedModel) -> None:
    encoder, search = Encoder(toy), Search(toy)
    assert isinstance(encoder, models.EncoderProtocol)
    assert not isinstance(encoder, models.SearchProtocol)
    assert isinstance(search, models.SearchProtocol)
    assert not isinstance(search, models.EncoderProtocol | models.CrossEncoderProtocol)
    meta = encoder.mteb_model_meta
    assert toy.fingerprint.startswith(meta.revision)
    assert meta.embed_dim == toy.dim
    assert set(meta.modalities) == {"text", "image"}
    assert meta.name != search.mteb_model_meta.name


def test_embeddings_are_those_of_the_model(toy: TrainedModel, toys: Dataset) -> None:
    encoder = Encoder(toy)
    images = [Image.fromarray(decode(record.image)) for record in toys.records[:3]]
    texts = ["a red square on white", "zebra", "a blue bar"]
    rows = encoder.encode([{"text": texts}, {"image": images}])
    said, seen = toy.encode_texts(texts, check=False), toy.encode_images(images)
    np.testing.assert_array_equal(rows, np.concatenate([said, seen]))
    both = encoder.encode([{"text": texts, "image": images}])
    np.testing.assert_allclose(both, (said + seen) / np.linalg.norm(said + seen, axis=1)[:, None], atol=1e-6)
    np.testing.assert_allclose(encoder.similarity(said, seen), said @ seen.T, atol=1e-6)
    np.testing.assert_allclose(encoder.similarity_pairwise(said, seen), (said * seen).sum(1), atol=1e-6)
    assert encoder.encode([]).shape == (0, toy.dim)
    with pytest.raises(SettingsError, match="texts and images"):
        encoder.encode([{"audio": [1]}])


def ranking(search: Search, dataset: Dataset, sentence: str, **options: Any) -> list[str]:
    rows = Rows.from_dict({"id": ["q"], "text": [sentence]})
    found = search.search(rows, **{"top_k": 50, **options})["q"]
    return [one for one, _ in sorted(found.items(), key=lambda pair: -pair[1])]


def test_the_first_are_re_ranked(reranking_run: Path, toys: Dataset, tmp_path: Path) -> None:
    import limner

    run = load_model(reranking_run, device="cpu", precision="fp32")
    test = task(toys, "t2i")
    test.load_data()
    orders = {}
    for rerank in (None, 0, 9):
        search = Search(run, rerank=rerank)
        search.index(test.dataset["default"]["test"]["corpus"], task_metadata=test.metadata)
        orders[rerank] = ranking(search, toys, "a red square on white")
        search.close()
    paths = [record.image for record in toys.records]
    limner.index(run, tmp_path / "store", paths)
    with limner.open_store(tmp_path / "store") as store:
        for rerank, order in orders.items():
            hits = store.search("a red square on white", k=50, rerank=rerank)
            served = [paths.index(hit.path) for hit in hits if hit.path is not None]
            assert [int(one.removeprefix("picture-")) for one in order] == served
    assert orders[9] != orders[0]
    # and through MTEB
    assert "hit_rate_at_1" in scores(measure(Search(run), [task(toys, "t2i")])[0])


def test_candidates_of_a_query_are_kept_to(toy: TrainedModel, toys: Dataset) -> None:
    test = task(toys, "t2i")
    test.load_data()
    search = Search(toy)
    search.index(test.dataset["default"]["test"]["corpus"], task_metadata=test.metadata)
    whole = ranking(search, toys, "a red square on white")
    some = ["picture-3", "picture-9", "picture-20"]
    found = ranking(search, toys, "a red square on white", top_ranked={"q": some})
    assert found == [one for one in whole if one in some]
    assert ranking(search, toys, "a red square on white", top_k=4) == whole[:4]
    # without a known word: the ranking of an empty sentence, and no error in the middle of a task
    assert len(ranking(search, toys, "zebra")) == len(toys)


def test_a_sentence_of_several_documents_is_all_of_them(toy: TrainedModel, toys: Dataset) -> None:
    corpus = Rows.from_dict({"id": ["a", "b", "c"], "text": ["a red bar", "a red bar", "a blue circle"]})
    search = Search(toy)
    search.index(corpus, task_metadata=task(toys, "i2t").metadata)
    image = Image.fromarray(decode(toys.records[0].image))
    found = search.search(Rows.from_dict({"id": ["q"], "image": [image]}), top_k=3)["q"]
    assert found.keys() == {"a", "b", "c"}
    assert found["a"] == found["b"] != found["c"]
    folder = search._folder
    search.close()
    assert folder is not None
    assert not folder.exists()
    with pytest.raises(SettingsError, match="before the search"):
        search.search(corpus, top_k=1)


def test_a_jpeg_is_indexed_as_it_is(toy: TrainedModel, toys: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "one.jpg"
    Image.fromarray(decode(toys.records[0].image)).resize((200, 180)).save(path, quality=70)
    from datasets import Image as Column

    corpus = Rows.from_dict({"id": ["one"], "image": [str(path)]}).cast_column("image", Column())
    search = Search(toy)
    search.index(corpus, task_metadata=task(toys, "t2i").metadata)
    assert search._folder is not None
    written = list(search._folder.glob("pictures/*"))
    assert [one.read_bytes() for one in written] == [path.read_bytes()]
    search.close()


def test_documents_of_both_kinds_are_refused(toy: TrainedModel, toys: Dataset) -> None:
    both = task(toys, "t2i").metadata.model_copy(update={"category": "t2it"})
    with pytest.raises(SettingsError, match="without --search"):
        Search(toy).index(Rows.from_dict({"id": ["a"]}), task_metadata=both)


def test_tasks_that_do_not_fit_are_refused(toy: TrainedModel, toys: Dataset) -> None:
    fits, heard = task(toys, "t2i"), task(toys, "t2i")
    heard.metadata = heard.metadata.model_copy(update={"modalities": ["text", "audio"]})
    with pytest.raises(SettingsError, match="it is of audio"):
        measure(Encoder(toy), [fits, heard])
    # before anything is measured, and without data
    assert not fits.data_loaded
    with pytest.raises(SettingsError, match="'STS' is no retrieval"):
        measure(Search(toy), find_tasks(["STS12"]))


def test_unknown_tasks_and_missing_data_are_one_line(
    toy: TrainedModel, toys: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="Flickr30kT2IRetrival"):
        find_tasks(["Flickr30kT2IRetrival"])
    broken = task(toys, "t2i")

    def load_data(**_: Any) -> None:
        raise ConnectionError("no network\nand more")

    monkeypatch.setattr(broken, "load_data", load_data)
    with pytest.raises(DataError, match=r"ToysT2I: its data cannot be had \(no network\)"):
        measure(Encoder(toy), [broken])


def test_importing_it_needs_no_network_and_no_mteb(tmp_path: Path) -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "import limner.mteb\n"
        "assert 'mteb' not in sys.modules and 'datasets' not in sys.modules\n"
        "import mteb\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=120)
