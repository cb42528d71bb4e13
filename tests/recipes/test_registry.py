import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.data.transforms import crop_of
from limner.errors import SettingsError
from limner.losses import CMCE, Instance, Pair, Ranking
from limner.recipes import RECIPES, get_recipe
from limner.recipes.change import change, differences
from limner.recipes.identity_aware import identity_aware_cuhk_pedes
from limner.recipes.registry import PAPER, PERSONS, PICTURES, TUNED
from limner.training.recipe import Recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_its_name_and_survives_json(name: str) -> None:
    recipe = get_recipe(name)
    assert recipe.name == name
    assert Recipe.parse(json.loads(recipe.model_dump_json())) == recipe
    assert change(recipe, []) == recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_what_it_is_and_how_to_run_it(name: str) -> None:
    first, *rest = (RECIPES[name].load().__doc__ or "").strip().splitlines()
    assert first.rstrip().endswith(".")
    assert RECIPES[name].about == first
    assert RECIPES[name].group in (PICTURES, PERSONS, TUNED, PAPER)
    assert f"limner train {name} --data" in " ".join(" ".join(rest).split())


def test_the_two_stages_of_section_5() -> None:
    """λ = (0, 1, 1) with the backbone frozen, then (1, 1, 1) on the whole network; α = 1, dropout 0.75."""
    first, second = get_recipe("dual-path").stages
    weights = [[dict(loss.weights) for loss in stage.losses] for stage in (first, second)]
    instance = {"visual": 1, "textual": 1, "joint": 0}
    assert weights == [[instance], [instance, {"ranking": 1}]]
    assert (first.frozen, second.frozen) == (("backbone",), ())
    assert second.loss(Ranking) == Ranking(margin=1)
    for stage in (first, second):
        assert stage.loss(Instance) == Instance(dropout=0.75)
        assert (stage.optimiser.name, stage.optimiser.rate, stage.optimiser.momentum) == ("sgd", 0.001, 0.9)


_OF_THE_PAPER = (
    "dual-path",
    "dual-path-cuhk-pedes",
    "dual-path-flickr8k",
    "dual-path-released",
    "dual-path-released-mscoco",
    "dual-path-released-cuhk-pedes",
    "dual-path-released-flickr8k",
)


@pytest.mark.parametrize("name", _OF_THE_PAPER)
def test_stage_two_of_dual_path_lets_the_backbone_learn_at_the_released_rate(name: str) -> None:
    """1e-4; at 1e-3 MobileNetV2's image path collapsed."""
    optimiser = get_recipe(name).stages[1].optimiser
    assert optimiser.rate * optimiser.multipliers["backbone"] == pytest.approx(1e-4)


@pytest.mark.parametrize("name", [name for name in _OF_THE_PAPER if "flickr8k" not in name])
def test_the_papers_commands_name_word2vec(name: str) -> None:
    described = " ".join((RECIPES[name].load().__doc__ or "").split())
    assert "--set vocabulary.vectors=GoogleNews-vectors-negative300.bin`" in described


def test_the_numbers_of_the_released_code() -> None:
    """train_*.m and the network files of layumi/Image-Text-Embedding at eefe0f2; the ranking weight is halved."""
    found = {}
    for name in _OF_THE_PAPER[3:]:
        first, second = get_recipe(name).stages
        before, after, ranking = first.loss(Instance), second.loss(Instance), second.loss(Ranking)
        assert before is not None
        assert after is not None
        assert ranking is not None
        assert (before.dropout, before.bias, before.weights) == (
            after.dropout,
            after.bias,
            {"visual": 1, "textual": 1, "joint": 0},
        )
        assert ranking.margin == 1
        epochs = (first.epochs, second.epochs, second.schedule.drops)
        negatives = ranking.candidates or ranking.negatives
        found[name.removeprefix("dual-path-released").lstrip("-")] = (
            *(before.dropout, before.bias, epochs, after.visual, after.textual, ranking.weight, negatives),
            first.pairing,
        )
        assert (first.optimiser.nesterov, first.optimiser.weight_decay) == (True, 1e-4)
        # with words from nothing the sentences stayed at chance at the released rate
        from_nothing = name == "dual-path-released-flickr8k"
        assert first.optimiser.rate == (0.01 if from_nothing else 0.1)
        assert first.optimiser.multipliers == ({} if from_nothing else {"words": 1e-3})
    flickr = (0.75, True, (240, 60, (40,)), 1, 0.1, 1, 256, "image")
    assert found == {
        "": flickr,
        "mscoco": (0.5, False, (90, 21, (15, 20)), 1, 0.1, 1, 256, "image"),
        "cuhk-pedes": (0.8, True, (180, 60, (40,)), 1, 0.5, 1, "mean", "group"),
        "flickr8k": flickr,
    }


def test_persons_are_cropped_as_the_text_says_or_squeezed_as_in_the_released_code() -> None:
    text, released = (get_recipe(f"dual-path-{name}") for name in ("cuhk-pedes", "released-cuhk-pedes"))
    # a person of 100 × 260: a crop of 224 rows sees a third of 666
    assert text.images.resized(100, 260)[1] == (256, 666)
    assert released.images.resized(100, 260)[1] == (256, 256)
    assert change(text, ["images.resize=[256,256]"]).images.resized(100, 260)[1] == (256, 256)


def test_the_identity_aware_crop_sees_the_middle_third_of_a_person_unless_it_is_squeezed() -> None:
    """Both forms as `dual-path-cuhk-pedes` has them, by one setting that its docstring names, at any height."""
    text = get_recipe("identity-aware-cuhk-pedes")
    (setting,) = re.findall(r"--set (images\.resize=\S+)`", str(identity_aware_cuhk_pedes.__doc__))
    squeezed = change(text, [setting])
    for width, height in ((60, 130), (100, 260), (100, 300), (180, 330)):
        left, top, right, bottom = crop_of(width, height, text.images)
        assert right - left == pytest.approx(224 / 256)
        assert bottom - top == pytest.approx(224 / 256 * width / height, rel=0.01)
        assert (bottom + top) / 2 == pytest.approx(0.5, abs=0.01)
        left, top, right, bottom = crop_of(width, height, squeezed.images)
        assert right - left == bottom - top == pytest.approx(224 / 256)
    assert squeezed.images.train_crop == text.images.train_crop == "random"


def test_unknown_recipes_get_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="unknown recipe 'dual-pth'; did you mean 'dual-path'"):
        get_recipe("dual-pth")
    with pytest.raises(SettingsError, match=r"known: .* dual-path, "):
        get_recipe("zzz")


def test_settings_are_put_where_they_say() -> None:
    recipe = change(
        get_recipe("dual-path"),
        [
            "seed=5",
            "stages.stage-1.epochs=3",
            "stages.1.losses.ranking.margin=0.2",
            "model.backbone.weights=a=b.pth",
            "vocabulary.vectors=captions",
            'stages.stage-1.optimiser.multipliers={"words": 0.5}',
            "stages.stage-1.optimiser.multipliers.text=2",
            "images.resize=[300, 200]",
            "images.crop=[200,200]",
            "stages.stage-1.patience=null",
        ],
    )
    first, second = recipe.stages
    assert (recipe.seed, first.epochs) == (5, 3)
    assert second.loss(Ranking) == Ranking(margin=0.2)
    assert recipe.model.backbone.weights == "a=b.pth"  # type: ignore[union-attr]
    assert recipe.vocabulary.vectors == "captions"
    assert first.optimiser.multipliers == {"words": 0.5, "text": 2}
    assert (recipe.images.resize, recipe.images.crop) == ((300, 200), (200, 200))
    assert first.patience is None


def test_losses_are_added_replaced_and_left_out_by_kind() -> None:
    recipe = change(
        get_recipe("dual-path"),
        [
            "stages.stage-1.losses.pair={}",
            "stages.stage-1.losses.pair.weight=0.5",
            "stages.stage-1.losses.instance=null",
            'stages.stage-2.losses.ranking={"margin": 0.2}',
            "stages.stage-2.losses.instance.joint=1",
            'stages.stage-2.losses.cmce={"keep": 0.1}',
        ],
    )
    first, second = recipe.stages
    assert first.losses == (Pair(weight=0.5),)
    assert second.losses == (Instance(joint=1), Ranking(margin=0.2), CMCE(keep=0.1))


@given(st.sampled_from(sorted(RECIPES)), st.sampled_from(sorted(RECIPES)))
@settings(max_examples=60)
def test_differences_make_one_recipe_of_another(before: str, after: str) -> None:
    one, other = get_recipe(before), get_recipe(after)
    assert change(one, differences(one, other)) == other
    assert differences(one, one) == ()


def test_differences_are_addressed_by_name() -> None:
    recipe = get_recipe("dual-path")
    settings = (
        "seed=3",
        "stages.stage-2.losses.ranking.margin=0.2",
        'stages.stage-2.losses.pair={"weight": 2.0}',
        "stages.stage-2.losses.instance=null",
        "stages.stage-2.patience=null",
        'vocabulary.vectors="1"',
    )
    assert sorted(differences(recipe, change(recipe, settings))) == sorted(settings)


def test_later_settings_win_and_may_depend_on_earlier_ones() -> None:
    recipe = change(
        get_recipe("dual-path"), ["seed=1", "seed=2", 'stages=[{"name": "only"}]', "stages.only.batch=4"]
    )
    assert recipe.seed == 2
    assert [(stage.name, stage.batch) for stage in recipe.stages] == [("only", 4)]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed", "setting 'seed': expected key=value"),
        ("=1", "setting '=1': expected key=value"),
        ("seed=\udcff", "expected Unicode text"),
        ("\udcff=1", "expected Unicode text"),
        ('name="\\ud800"', "expected Unicode text"),
        ("sed=1", "unknown setting 'sed'; did you mean 'seed'"),
        ("seed=-1", "setting 'seed': .*got -1"),
        (f"seed={2**63}", "setting 'seed': .*less than 9223372036854775808"),
        ("seed=one", "setting 'seed': .*got 'one'"),
        ("modle.dim=3", "setting 'modle.dim': unknown part 'modle'; did you mean 'model'"),
        ("model.dimm=3", r"unknown setting 'model\.dimm'; did you mean 'dim'"),
        ("stages.stage-3.epochs=1", r"no entry 'stage-3' among 2 \(stage-1, stage-2\)"),
        ("stages.7.epochs=1", "no entry '7' among 2"),
        ("stages.-1.epochs=1", "no entry '-1' among 2"),
        ("seed.x=1", "'seed' is a single value and has no 'x'"),
        ("images.resize.0=5", "'resize' is a single value and has no '0'"),
        ("model=5", "setting 'model'"),
        ("stages=[]", "setting 'stages'"),
        ("stages.stage-1.losses.instance.dropout=1", "losses.instance.dropout': .*less than 1"),
        ("stages.stage-2.losses.ranking.margin=NaN", "losses.ranking.margin': .*finite number"),
        (
            "stages.stage-1.losses.sigma_images=3",
            r"unknown loss 'sigma_images'; did you mean 'stages\.stage-1\.losses\.cmce\.sigma_images'",
        ),
        ("stages.stage-2.losses.marign=1", r"did you mean 'stages\.stage-2\.losses\.ranking\.margin'\?"),
        (
            "stages.stage-1.losses.instance.sigma_images=3",
            r"unknown setting 'stages\.stage-1\.losses\.instance\.sigma_images'; it is one of losses\.cmce",
        ),
        ("stages.stage-1.losses.instance.dropot=0", "did you mean 'dropout'"),
        ("stages.stage-1.losses.rankng={}", "unknown loss 'rankng'; did you mean 'ranking'"),
        (
            "stages.stage-1.losses.ranking.margin=1",
            r"only instance; add it with stages\.stage-1\.losses\.ranking=\{\}",
        ),
        ("stages.stage-1.losses.ranking=1", "expected an object of the loss's settings"),
        (
            'stages.stage-1.losses.ranking={"margn": 1}',
            r"unknown setting 'stages\.stage-1\.losses\.ranking\.margn'",
        ),
        ("stages.stage-1.losses.instance=null", "a stage needs a loss"),
        ("stages.stage-1.losses.levels={}", "needs levels, which model.system=dual-path does not offer"),
        ('stages.stage-1.frozen=["head"]', "has no part 'head'"),
        ("seed=" + "9" * 5000, "setting 'seed'"),
        ("model=" + "[" * 100_000, "setting 'model'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(setting: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        change(get_recipe("dual-path"), [setting])
    assert "\n" not in str(caught.value)


_NAMES = sorted(
    {
        "model",
        "backbone",
        "text",
        "images",
        "stages",
        "stage-1",
        "0",
        "losses",
        "instance",
        "ranking",
        "kind",
        "optimiser",
        "multipliers",
        "words",
    }
    | {"seed", "select", "frozen", "classes", "resize", "crop", "name", "epochs", "", "vocabulary", "vectors"}
)
_KEYS = st.lists(st.sampled_from(_NAMES) | st.text(max_size=5), min_size=1, max_size=5).map(".".join)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=3),
    max_leaves=6,
).map(json.dumps)
_SETTINGS = st.builds("{}={}".format, _KEYS, _JSON | st.text()) | st.text()


@settings(max_examples=400)
@given(st.lists(_SETTINGS, min_size=1, max_size=3))
def test_any_settings_give_a_recipe_or_a_settings_error(strings: list[str]) -> None:
    try:
        changed = change(get_recipe("dual-path"), strings)
    except SettingsError:
        return
    assert isinstance(changed, Recipe)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_read_from_the_file_that_it_was_written_to(name: str, tmp_path: Path) -> None:
    recipe = get_recipe(name)
    file = tmp_path / "mine.json"
    file.write_text(recipe.model_dump_json(indent=2), encoding="utf-8")
    assert get_recipe(str(file)) == recipe


def test_a_file_names_only_what_is_not_the_default(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text('\ufeff{"name": "mine", "seed": 3, "stages": [{"name": "only"}]}', encoding="utf-8")
    assert get_recipe(str(file)) == Recipe.parse({"name": "mine", "seed": 3, "stages": [{"name": "only"}]})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"stages: []", "JSON was expected, .* at line 1, column 1"),
        (b"\xff{}", "UTF-8 text was expected, got byte 0xff"),
        (b"\xff\xfe{\0}\0", "setting 'name': Field required"),
        (b"[1, 2]", r"an object of settings was expected, got \[1, 2\]"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"name": "x"}', "setting 'stages': Field required"),
        (
            b'{"name": "x", "sed": 1, "stages": [{"name": "only"}]}',
            "unknown setting 'sed'; did you mean 'seed'",
        ),
        (b'{"name": "x", "stages": [{"name": "only", "epochs": -1}]}', "setting 'stages.only.epochs'"),
        (b'{"name": "\\ud800", "stages": [{"name": "only"}]}', "half of a surrogate pair"),
        (
            b'{"name": "x", "stages": [{"name": "only", "losses": [{"kind": "ranking", "margin": NaN}]}]}',
            "NaN",
        ),
    ],
)
def test_a_file_that_is_no_recipe_is_refused_in_one_line(
    content: bytes, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=message) as caught:
        get_recipe(str(file))
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused_with_how_to_write_one(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    for name in ("none.json", "folder.json"):
        with pytest.raises(
            SettingsError, match=rf"{name}: no such recipe; write one with `limner recipes show"
        ):
            get_recipe(str(tmp_path / name))
    with pytest.raises(SettingsError, match=r"no such recipe"):
        get_recipe("half\0.json")


@settings(max_examples=200)
@given(content=_JSON.map(str.encode) | st.binary())
def test_any_file_gives_a_recipe_or_a_settings_error(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_bytes(content)
    try:
        recipe = get_recipe(str(file))
    except SettingsError:
        return
    assert isinstance(recipe, Recipe)
