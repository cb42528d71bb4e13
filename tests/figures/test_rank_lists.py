from pathlib import Path

import numpy as np
import pytest

import limner
from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.figures.rank_lists import RankList, rank_list_figure, rank_lists
from limner.figures.style import GREEN, RED, write_figure
from limner.inference.trained import TrainedModel


@pytest.mark.parametrize("to_text", [False, True])
def test_rank_lists_are_the_ranking(run: TrainedModel, toys: Dataset, to_text: bool) -> None:
    records = toys.split("test").records
    lists = rank_lists(run, records, to_text=to_text, queries=3, first=4)
    assert len(lists) == 3
    images = run.encode_images([record.image for record in records])
    sentences = [sentence for record in records for sentence in record.sentences]
    texts = run.encode_texts(sentences)
    for one in lists:
        if to_text:
            row = [record.image for record in records].index(Path(one.query))
            scores, items = texts @ images[row], sentences
            own = set(records[row].sentences)
        else:
            row = sentences.index(str(one.query))
            scores, items = images @ texts[row], [str(record.image) for record in records]
            own = {str(records[row // 2].image)}
        found = [str(item) for item, _ in one.found]
        assert found == [items[place] for place in np.argsort(-scores, kind="stable")[:4]]
        assert [true for _, true in one.found] == [item in own for item in found]
    figure = rank_list_figure(lists)
    trues = [true for one in lists for _, true in one.found]
    if to_text:
        colours = [text.get_color() for axes in figure.axes for text in axes.texts]
        assert colours == [GREEN if true else RED for true in trues]
    else:
        frames = [axes.spines["top"] for axes in figure.axes if axes.images]
        from matplotlib.colors import to_hex

        assert [to_hex(frame.get_edgecolor()) for frame in frames] == [
            GREEN if true else RED for true in trues
        ]


@pytest.mark.parametrize("to_text", [False, True])
def test_a_matcher_orders_the_first(reranking_run: Path, toys: Dataset, to_text: bool) -> None:
    run = limner.load(reranking_run, stage="stage-2", device="cpu", precision="fp32")
    records = toys.split("test").records
    (one,) = rank_lists(run, records, to_text=to_text, queries=1, first=5)
    pictures = [record.image for record in records]
    said = [sentence for record in records for sentence in record.sentences]
    items = [item for item, _ in one.found]
    asked = [one.query] * 5
    images, texts = (asked, items) if to_text else (items, asked)
    texts_at = np.array([said.index(str(text)) for text in texts])
    images_at = np.array([pictures.index(Path(image)) for image in images])
    none = np.zeros((len(pictures), 1), np.float32), np.zeros((len(said), 1), np.float32)
    scorer = run.expect_reranker().pair_scorer(*none, run.encode_regions(pictures), said)
    logits = scorer(images_at, texts_at)
    assert (np.diff(logits) <= 1e-4).all()


def test_rank_lists_of_nothing_are_refused(run: TrainedModel, toys: Dataset) -> None:
    with pytest.raises(SettingsError, match="at least one query"):
        rank_lists(run, toys.records, to_text=False, queries=0, first=4)


def test_dollars_are_no_mathematics(tmp_path: Path) -> None:
    lists = [RankList("bags at $5 #1 and $10", (("signs $$ and $$ up", True),))]
    write_figure(rank_list_figure(lists), tmp_path / "a.svg")
    assert "signs $$ and $$ up" in (tmp_path / "a.svg").read_text(encoding="utf-8")
