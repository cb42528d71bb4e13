"""Re-rankers above a pair of towers: HGAN's levels, and co-attention, over patches and tokens."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import limner
from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.inference.evaluate_run import evaluate_run
from limner.inference.rerank_co_attention import CoAttentionReranker
from limner.inference.rerank_levels import LevelsReranker
from limner.losses import SDM, Levels, LossSettings
from limner.models.co_attention import CoAttentionSettings
from limner.models.levels import LevelledEncoder
from limner.models.pretrained import Pretrained, PretrainedSettings
from limner.models.registry import build_network
from limner.models.text_tower import TextTowerSettings
from limner.recipes.change import change, start_from
from limner.recipes.registry import get_recipe
from limner.search.index import index_pictures
from limner.search.store import open_store
from limner.store.files import store_for
from limner.training.loop import train
from limner.training.objective import Objective, TrainingBatch
from limner.training.prepare import prepare
from limner.training.recipe import PairSettings, Recipe
from tests import towers
from tests.toy import toy_late, toy_levels, toy_recipe
from tests.training.interrupted import killed_and_resumed, same_run, stopped_and_resumed

pytest.importorskip("transformers")

SENTENCES = ("a red bar on white", "a blue circle", "on grey ground, a square in blue", "", "of")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP as a run."""
    return towers.clip_run(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def levels_run(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of the levels above a pair."""
    return trained(toys, toy_levels(), tmp_path_factory.mktemp("levels") / "run")


@pytest.fixture(scope="module")
def crossed_run(toys: Dataset, pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP that was tuned, then a cross-encoder above it, its towers held fixed and then learning."""
    return trained(toys, crossed(pair), tmp_path_factory.mktemp("crossed") / "run")


def trained(toys: Dataset, recipe: Recipe, out: Path) -> Path:
    return train(recipe, toys.split("train"), toys.split("val"), out, cpu=True)


def of_pair(pair: Path, losses: tuple[LossSettings, ...]) -> Recipe:
    recipe = start_from(toy_recipe(), pair)
    first, _ = recipe.stages
    tuned = first.replace(epochs=1, frozen=(), views=0, position_shift=False, losses=losses)
    return recipe.replace(stages=(tuned,), rerank=3)


def crossed(pair: Path) -> Recipe:
    recipe = of_pair(pair, (SDM(),))
    (first,) = recipe.stages
    fixed = first.replace(
        name="stage-2",
        frozen=("backbone", "words", "text"),
        batch=16,
        views=1,
        losses=(),
        reranker_pairs=PairSettings(count=4, an_epoch=2),
    )
    return recipe.replace(
        cross_encoder=CoAttentionSettings(steps=2, spatial_dim=6, semantic_dim=7, dim=8),
        stages=(first, fixed, fixed.replace(name="free", frozen=(), views=0)),
    )


@pytest.mark.parametrize("kill_at", [1, 4])
def test_levels_stopped_and_resumed_are_the_uninterrupted_run(
    toys: Dataset, levels_run: Path, tmp_path: Path, kill_at: int
) -> None:
    stopped_and_resumed(toys, toy_levels(), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", levels_run)


def test_kill_9_changes_no_bit(toys: Dataset, levels_run: Path, tmp_path: Path) -> None:
    killed_and_resumed(toys, toy_levels(), tmp_path / "run", "stage-2 1 2")
    same_run(tmp_path / "run", levels_run)


def test_words_and_phrases_are_logged(levels_run: Path) -> None:
    rows = [json.loads(line) for line in (levels_run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        assert row["loss"] == pytest.approx(row["sdm"] + row["word"] + row["phrase"], rel=1e-5)


def test_the_levels_of_a_batch_are_learnt(toys: Dataset) -> None:
    """The hinges over words and phrases of four pairs fall, while both towers are held fixed."""
    data = prepare(toy_levels(), toys.split("train"), toys.split("val"))
    model = data.objective.model.eval().requires_grad_(False)
    learning = model.parts()["local"]
    for parameter in learning:
        parameter.requires_grad_(True)
    images = torch.from_numpy(data.train_pictures.centred(np.array([0, 3, 7, 11])))
    rows = torch.from_numpy(data.pairs.layout(np.array([0, 6, 14, 22]), 16, None))
    phrases = torch.from_numpy(data.pairs.phrase_layout(np.array([0, 6, 14, 22]), 16))
    optimiser, loss = torch.optim.Adam(learning, 0.01), Levels().build(16, 0)
    groups, totals = torch.arange(4), []
    for _ in range(100):
        matches = model.embed_pairs(images.permute(0, 3, 1, 2), rows, phrases, local=True)[2]
        total = torch.stack(
            [loss(match.similarity, match.counted, groups) for match in matches.values()]
        ).sum()
        optimiser.zero_grad()
        torch.autograd.backward(total)
        optimiser.step()
        totals.append(float(total.detach()))
    assert totals[-1] < totals[0] / 2


def test_fixed_towers_stay_and_the_levels_learn(toys: Dataset, levels_run: Path) -> None:
    before = prepare(toy_levels(), toys.split("train"), toys.split("val")).objective.model.state_dict()
    after = load_file(levels_run / "stage-1.safetensors")
    weights = [name for name in before if name.endswith("weight")]
    moved = {name.split(".")[0] for name in weights if not before[name].equal(after[name])}
    assert moved == {"image_projection", "text_projection", "words_and_phrases", "branches", "local"}


@pytest.mark.parametrize("local", [True, False])
def test_cached_maps_and_tokens_give_what_pixels_and_sentences_give(
    toys: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, local: bool
) -> None:
    """The similarities and the embeddings of a step from the cache, against a pass of both towers."""
    batches: list[TrainingBatch] = []
    plain = Objective.forward

    def forward(self: Objective, batch: TrainingBatch) -> dict[str, torch.Tensor]:
        batches.append(batch)
        return plain(self, batch)

    monkeypatch.setattr(Objective, "forward", forward)
    recipe = toy_levels()
    losses = (SDM(), Levels()) if local else (SDM(),)
    recipe = recipe.replace(stages=(recipe.stages[0].replace(epochs=1, losses=losses, views=1),))
    run = limner.load(trained(toys, recipe, tmp_path / "run"), device="cpu", precision="fp32")
    model = run.model.eval()
    assert isinstance(model, Pretrained)
    model.backbone.set_frozen(True)
    batch = batches[-1]
    assert batch.words_below is not None
    assert batch.words_below.shape[2] == model.text.channels
    assert batch.images.is_floating_point()
    pictures = [record.image for record in toys.split("train").records]
    pixels = torch.from_numpy(np.stack([run.prepare_image(path) for path in pictures])).permute(0, 3, 1, 2)
    with torch.inference_mode():
        maps = model.backbone.forward_map(pixels).permute(0, 2, 3, 1)
        # the picture of each cached map: views=1 keeps the picture as it is at testing
        distances = torch.cdist(batch.images.float().flatten(1), maps.flatten(1))
        shown = distances.argmin(dim=1)
        assert distances.min(dim=1).values.max() < 1
        below = model.embed_pairs(
            batch.images, batch.token_ids, batch.phrases, batch.words_below, local=local
        )
        anew = model.embed_pairs(pixels[shown], batch.token_ids, batch.phrases, local=local)
    for one, other in zip(below[:2], anew[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=0.01, atol=0.01)
    assert set(below[2]) == set(anew[2]) == ({"word", "phrase"} if local else set())
    for level, match in below[2].items():
        torch.testing.assert_close(match.similarity, anew[2][level].similarity, rtol=0.01, atol=0.01)
        assert match.counted.equal(anew[2][level].counted)


def test_rows_beside_a_batch_are_read_by_the_tower(toys: Dataset) -> None:
    """Mined negatives are not in the cache; the rows before them are, and all stand in their order."""
    recipe = toy_levels()
    model = prepare(recipe, toys.split("train"), toys.split("val")).objective.model.eval()
    assert isinstance(model, Pretrained)
    token_ids = torch.tensor([[3, 4, 5, 0], [6, 7, 0, 0], [8, 9, 10, 11]])
    phrases = torch.tensor([[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 2]])
    images = torch.randint(0, 256, (2, 3, 48, 32), dtype=torch.uint8)
    with torch.inference_mode():
        kept = model.text.token_features(token_ids[:2])
        for local in (True, False):
            whole = model.embed_pairs(images, token_ids, phrases, local=local)
            part = model.embed_pairs(images, token_ids, phrases, kept, local=local)
            torch.testing.assert_close(part[1], whole[1], rtol=1e-4, atol=1e-5)
            for level, match in whole[2].items():
                torch.testing.assert_close(part[2][level].similarity, match.similarity, rtol=1e-4, atol=1e-5)


def test_the_reranker_scores_pairs_as_the_network_does(toys: Dataset, levels_run: Path) -> None:
    run = limner.load(levels_run, device="cpu", precision="fp32")
    reranker, model = run.expect_reranker(), run.model
    assert isinstance(reranker, LevelsReranker)
    assert isinstance(model, LevelledEncoder)
    pictures = [record.image for record in toys.records[:6]]
    regions = run.encode_regions(pictures)
    # 2 × 2 windows of a map of 3 × 2; words and phrases have 16 numbers each
    assert regions.shape == (6, *reranker.region_shape) == (6, 2, 2, 32)
    images, texts = run.encode_images(pictures), run.encode_texts(SENTENCES, check=False)
    pixels = torch.from_numpy(np.stack([run.prepare_image(path) for path in pictures])).permute(0, 3, 1, 2)
    read = run.tokenize(SENTENCES)
    assert read.phrases is not None
    with torch.inference_mode():
        matches = model.eval().embed_pairs(
            pixels, torch.from_numpy(read.token_ids), torch.from_numpy(read.phrases), local=True
        )[2]
    word, phrase = (matches[level].similarity.numpy() for level in ("word", "phrase"))
    counted = matches["phrase"].counted.numpy()
    expected = images @ texts.T + np.where(counted, 0.5 * word + 0.25 * phrase, 0.75 * word)
    rows, columns = (part.ravel() for part in np.indices(expected.shape))
    found = reranker.pair_scorer(images, texts, regions, SENTENCES)(rows, columns)
    np.testing.assert_allclose(found, expected.ravel(), atol=2e-3)
    answer = reranker.rerank(SENTENCES[0], regions)
    np.testing.assert_allclose(reranker.scores(images @ texts[0], answer.logits), expected[:, 0], atol=2e-3)
    assert answer.of_regions is not None
    assert answer.of_regions.shape == (6, len(answer.words), 2, 2)
    np.testing.assert_allclose(answer.of_regions.sum(axis=(2, 3)), 1, atol=1e-3)


def test_a_word_of_several_tokens_has_their_mean_over_regions_and_their_sum_of_a_region(
    toys: Dataset, levels_run: Path
) -> None:
    run = limner.load(levels_run, device="cpu", precision="fp32")
    reranker, sentence = run.expect_reranker(), "a red bar beside a zebra"
    assert isinstance(reranker, LevelsReranker)
    regions, read = run.encode_regions([toys.records[0].image]), run.tokenize([sentence], words=True)
    assert read.words is not None
    words = read.words[0]
    assert max(len(word.tokens) for word in words) > 1
    _, of_regions, of_items = reranker._attended(regions, read)
    answer = reranker.rerank(sentence, regions)
    assert of_items is not None
    assert of_regions is not None
    assert answer.of_words is not None
    assert answer.of_regions is not None
    for number, word in enumerate(words):
        own = list(word.tokens)
        mean = sum(of_regions[0, token] for token in own) / len(own)
        np.testing.assert_allclose(answer.of_regions[0, number].ravel(), mean, rtol=1e-5)
        told = sum(of_items[0, :, token] for token in own)
        np.testing.assert_allclose(answer.of_words[0, :, number], told, rtol=1e-5)


def test_levels_are_added_to_an_imported_pair(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    settings = json.dumps({"dim": 16, "heads": 2, "granularities": ["word"], "local": {"hidden": 8}})
    recipe = change(
        of_pair(pair, (SDM(),)),
        [
            f"model.levels={settings}",
            'stages.stage-1.losses=[{"kind": "sdm"}, {"kind": "levels", "phrase": 0}]',
        ],
    )
    out = trained(toys, recipe, tmp_path / "run")
    first, before = load_file(out / "stage-1.safetensors"), load_file(pair / "imported.safetensors")
    assert first["local.word.score.weight"].shape == (1, 8)
    assert not [name for name in first if "phrase." in name and name.startswith(("local", "branches"))]
    assert not [name for name in before if name.startswith(("local", "branches", "words_and"))]
    run = limner.load(out, device="cpu")
    assert isinstance(run.reranker, LevelsReranker)
    # a run that has them goes on with what it has, and with no others
    wider = recipe.replace(start=str(out), model=recipe.model.replace(levels=toy_levels().model.levels))  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match=r"setting 'model\.levels': they are those of the run"):
        trained(toys, wider, tmp_path / "wider")


def test_the_command_of_the_page_tunes_a_pair_with_levels(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    settings = ["model.levels={}", "stages.tune.losses.levels={}", "rerank=20"]
    quick = ["stages.tune.epochs=1", "stages.tune.batch=8"]
    recipe = change(start_from(get_recipe("fine-tune"), pair), settings + quick)
    run = limner.load(trained(toys, recipe, tmp_path / "run"), device="cpu")
    assert isinstance(run.reranker, LevelsReranker)
    # 30 kB a picture, as the page says
    assert int(np.prod(run.reranker.region_shape)) * 2 == 30_720


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.late={}", "late and levels both re-rank"),
        ("model.levels=null", "losses.levels needs words and phrases; set model.levels={}"),
        (
            'model.levels={"granularities": ["word"]}',
            "losses.levels.phrase needs 'phrase' among model.levels.gran",
        ),
        ('model.levels={"granularities": ["word", "word"]}', "names one twice"),
        ('model.levels={"granularities": []}', "name 'word', 'phrase' or both"),
        ('model.levels={"dim": 12, "heads": 8}', "cannot be shared"),
        (
            "stages.stage-2.position_shift=true",
            "noun phrases are counted in sentences that stand at the left",
        ),
        ('stages.stage-2.losses.ranking={"candidates": 4}', "rows of mined negatives beside it"),
    ],
)
def test_levels_that_do_not_fit_are_refused(setting: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        change(toy_levels(), [setting])


def test_a_cross_encoder_above_fixed_and_learning_towers(crossed_run: Path) -> None:
    first, fixed, free = (
        load_file(crossed_run / f"{name}.safetensors") for name in ("stage-1", "stage-2", "free")
    )
    towers_of = [name for name in fixed if name.startswith(("cross_encoder.backbone", "cross_encoder.text"))]
    assert towers_of
    copies = {name: name.removeprefix("cross_encoder.") for name in towers_of}
    assert all(fixed[name].equal(first[own]) for name, own in copies.items())
    assert any(not free[name].equal(fixed[name]) for name in towers_of)
    # the embedding screens as it stood
    assert all(free[name].equal(first[name]) for name in first if not name.startswith("tokenizer"))


def test_a_cross_encoder_ranks_and_is_found_by_a_search(
    toys: Dataset, crossed_run: Path, tmp_path: Path
) -> None:
    # by name: which stage of so small a run is the best is chance
    run = limner.load(crossed_run / "free.safetensors", device="cpu", precision="fp32")
    reranker = run.expect_reranker()
    assert isinstance(reranker, CoAttentionReranker)
    pictures = [record.image for record in toys.records[:8]]
    regions = run.encode_regions(pictures)
    # patches of 8 pixels of a side of 32
    assert regions.shape[1:] == reranker.region_shape == (4, 4, 32)
    cross_encoder = run.model.cross_encoder
    assert cross_encoder is not None
    pixels = torch.from_numpy(np.stack([run.prepare_image(path) for path in pictures])).permute(0, 3, 1, 2)
    token_ids = torch.from_numpy(run.tokenize(SENTENCES[:1]).token_ids)
    with torch.inference_mode():
        slow = cross_encoder.eval()(pixels, token_ids.expand(len(pixels), -1)).logits.numpy()
    answer = reranker.rerank(SENTENCES[0], regions)
    np.testing.assert_allclose(answer.logits, slow, atol=2e-2)
    assert answer.of_regions is not None
    assert answer.of_regions.shape == (8, len(answer.words), 4, 4)
    assert evaluate_run(run, toys.split("val"), "val").protocol.endswith("first 3 re-ranked")
    index_pictures(run, store_for(run, run.path, tmp_path / "store"), pictures)
    hits = open_store(tmp_path / "store").search(SENTENCES[0], k=3)
    assert run.rerank == 3
    similarities = run.encode_images(pictures) @ run.encode_texts(SENTENCES[0])[0]
    names = [path.name for path in pictures]
    shown = [names.index(Path(str(hit.path)).name) for hit in hits]
    # pictures of toys are hardly apart in a random pair: equal ones may change places
    assert similarities[shown].min() >= np.sort(similarities)[-3] - 1e-3
    assert (np.diff(answer.logits[shown]) <= 1e-3).all()


def test_a_cross_encoder_stopped_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, pair: Path, crossed_run: Path, tmp_path: Path
) -> None:
    stopped_and_resumed(toys, crossed(pair), tmp_path / "run", kill_at=2)
    same_run(tmp_path / "run", crossed_run)


def test_a_stage_before_the_cross_encoder_ranks_by_the_embedding(toys: Dataset, crossed_run: Path) -> None:
    """Patches show where words point and order nothing: nothing is re-ranked, and no store keeps them for that."""
    run = limner.load(crossed_run / "stage-1.safetensors", device="cpu")
    assert run.model.reranked_by == "patches"
    assert run.rerank == 0
    assert "re-ranked" not in evaluate_run(run, toys.split("val"), "val").protocol


@pytest.mark.parametrize("feature", ["mean", "first"])
def test_siglips_tokens_are_not_what_its_features_are_made_of(tmp_path: Path, feature: str) -> None:
    """SigLIP's last layer is in its tower: tokens pass it, and a feature of their states would be another one."""
    towers.save_siglip(tmp_path)
    tower = TextTowerSettings(
        model=str(tmp_path), words=towers.LENGTH, feature=feature, filled="right", masked=False
    )
    recipe = toy_levels()
    network = build_network(recipe.model.replace(text=tower), 100)
    with pytest.raises(SettingsError, match="set the stage's views to 0"):
        network.kept_words({"words", "text"})
    assert network.kept_words({"text"}) is None


def test_a_run_with_one_kind_of_parts_takes_no_other(toys: Dataset, levels_run: Path, tmp_path: Path) -> None:
    levels = toy_levels().model
    assert isinstance(levels, PretrainedSettings)
    assert levels.levels is not None
    late = toy_late()
    with pytest.raises(SettingsError, match="has levels, and a network has one of both"):
        trained(toys, late.replace(start=str(levels_run)), tmp_path / "late")
    # what acts in training alone is the run's, too: a recipe that says otherwise would be untrue
    other = levels.replace(levels=levels.levels.replace(dropout=0.5))
    with pytest.raises(SettingsError, match=r"setting 'model.levels': they are those of the run"):
        trained(toys, toy_levels().replace(start=str(levels_run), model=other), tmp_path / "other")


def test_levels_leave_chunks_to_a_stage_that_does_not_read_them(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_levels()
    stage = recipe.stages[1].replace(losses=(SDM(),), chunk=4, backbone_statistics="fixed", epochs=1)
    assert trained(toys, recipe.replace(stages=(stage,)), tmp_path / "run").is_dir()


def test_states_of_words_are_the_towers_tokens(toys: Dataset) -> None:
    model = prepare(toy_levels(), toys.split("train"), toys.split("val")).objective.model.eval()
    assert isinstance(model, Pretrained)
    token_ids = torch.tensor([[3, 4, 5, 0], [0, 0, 0, 0], [6, 0, 0, 0]])
    with torch.inference_mode():
        states, present = model.text.encode_words(token_ids)
        own = model.text.token_features(token_ids)
    # a sentence without a token keeps one position: a softmax over nothing is NaN
    assert present.tolist() == [
        [True, True, True, False],
        [True, False, False, False],
        [True, False, False, False],
    ]
    torch.testing.assert_close(states, own)
    assert not F.relu(states[1].abs()).any()
