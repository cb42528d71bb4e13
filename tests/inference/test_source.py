"""What an argument that names a model is, answered once for every command."""

from pathlib import Path

import pytest

import limner
from limner.errors import CheckpointError, SettingsError
from limner.inference.run_file import expect_free
from limner.inference.source import kind_of


def folder(above: Path, *names: str) -> Path:
    made = above / "_".join(names)
    made.mkdir()
    for name in names:
        (made / name).write_text("{}", encoding="utf-8")
    return made


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("run.json",), "run"),
        (("export.json",), "export"),
        (("config.json",), "pretrained"),
        (("open_clip_config.json",), "pretrained"),
        # a run that was pushed has a config.json for the hub beside it
        (("run.json", "config.json"), "run"),
        (("export.json", "config.json"), "export"),
        (("picture.jpg",), None),
    ],
)
def test_a_folder_by_its_files(tmp_path: Path, names: tuple[str, ...], kind: str | None) -> None:
    assert kind_of(folder(tmp_path, *names)) == kind_of(str(tmp_path / "_".join(names))) == kind


def test_names_and_what_is_neither(tmp_path: Path) -> None:
    assert kind_of("hf:google/siglip2") == kind_of(Path("hf:a/b@main")) == "hub"
    assert kind_of("st:clip-ViT-B-32") == kind_of("st:./folder") == "sentence-transformers"
    (tmp_path / "recipe.json").write_text("{}", encoding="utf-8")
    (tmp_path / "weights.safetensors").write_bytes(b"")
    for other in ("dual-path", tmp_path / "none", tmp_path / "recipe.json", tmp_path / "weights.safetensors"):
        assert kind_of(other) is None


def test_what_is_no_run_says_what_it_is(tmp_path: Path) -> None:
    for source, said in (
        (folder(tmp_path, "export.json"), "an export, which indexes and searches only; give the run"),
        (
            folder(tmp_path, "config.json"),
            "a pretrained model, or an export for another program, and no run; .*`limner import`",
        ),
        (folder(tmp_path, "store.sqlite"), "a store of pictures and no run; give the run"),
        ("st:clip-ViT-B-32", "a name of sentence-transformers and no run; .*`limner import`"),
        (tmp_path / "none", r"no trained run here \(run\.json is missing\)"),
    ):
        with pytest.raises(CheckpointError, match=said) as refused:
            limner.load(source)
        assert "\n" not in str(refused.value)


def test_a_run_is_not_written_into_another_kind_of_folder(tmp_path: Path) -> None:
    for file, what in (
        ("export.json", "an export"),
        ("config.json", "a pretrained model"),
        ("store.sqlite", "a store"),
        ("run.json", "a run"),
    ):
        taken = folder(tmp_path, file)
        with pytest.raises(SettingsError, match=f"it is the folder of {what}; give another one for the run"):
            expect_free(taken, "the run")
    expect_free(tmp_path / "new", "the run")
    # of a training that was killed before its first state
    (taken / "run.json").write_text('{"origin": "a", "finished": false}', encoding="utf-8")
    expect_free(taken, "the run")
    (taken / "run.json").write_text('{"origin": "a", "finished": true}', encoding="utf-8")
    with pytest.raises(SettingsError, match="the folder of a run"):
        expect_free(taken, "the run")
    expect_free(taken, "the run", resume=True)
