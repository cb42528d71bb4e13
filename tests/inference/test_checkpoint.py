import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from limner.durable import write_text
from limner.errors import CheckpointError
from limner.inference import checkpoint
from limner.inference.checkpoint import (
    FORMAT,
    TOKENIZER,
    load_into,
    read_checkpoint,
    read_description,
    write_checkpoint,
)

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b.c": torch.tensor([1, 2], dtype=torch.int64)}
DESCRIPTION = {"system": "toy", "vocabulary": ["größe", "犬"], "seed": 7, "scores": [0.5, None]}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_checkpoint(path, TENSORS, DESCRIPTION)
    tensors, description = read_checkpoint(path)
    assert description == {"format": FORMAT, **DESCRIPTION} == read_description(path)
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert torch.equal(tensors[name], tensor)
        assert tensors[name].dtype == tensor.dtype
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]


def test_equal_contents_are_equal_bytes(tmp_path: Path) -> None:
    """safetensors has the two texts of a header in another order each time: one of twelve files differs, or more."""
    told = {**DESCRIPTION, "odd": '\x00\x1f\x7f"\\/\u2028 größe 犬 😀 \ud800'}
    for turn in range(12):
        # in which order tensors were gathered is not in the file, either
        tensors = dict(sorted(TENSORS.items(), reverse=turn % 2 == 1))
        write_checkpoint(tmp_path / f"{turn}.safetensors", tensors, told)
    assert len({file.read_bytes() for file in tmp_path.iterdir()}) == 1
    assert read_checkpoint(tmp_path / "0.safetensors")[1] == {"format": FORMAT, **told}


@pytest.mark.parametrize("at_once", [1 << 22, 6, 1])
def test_rows_of_a_tensor_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Read as a whole or in parts of the file, rows are what slices of the tensor are, and the digest is compared."""
    path = tmp_path / "checkpoint.safetensors"
    written = {
        "table": torch.randn(7, 3),
        "halves": torch.randn(7, 2, 2).bfloat16(),
        "one": torch.tensor(3.0),
        "none": torch.ones(0, 4),
    }
    write_checkpoint(path, written, {"name": "rows"})
    monkeypatch.setattr(checkpoint, "_READ", at_once)
    for asked in (slice(start, stop) for start in range(8) for stop in range(start, 9)):
        read, _ = read_checkpoint(path, rows=dict.fromkeys(written, asked).get)
        for name, tensor in written.items():
            # without such rows it is whole
            has_them = tensor.dim() and asked.stop <= len(tensor)
            assert torch.equal(read[name], tensor[asked] if has_them else tensor)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(path, only=(), rows=lambda _: slice(0, 0))


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_checkpoint(path, TENSORS, DESCRIPTION)
    whole = path.read_bytes()
    assert whole.count(b'\\"seed\\": 7') == 1
    for damaged in (
        whole[:-1] + bytes([whole[-1] ^ 1]),
        whole.replace(b'\\"seed\\": 7', b'\\"seed\\": 8'),
        whole.replace(b'"digest"', b'"digesu"'),
    ):
        assert damaged != whole
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="its digest is another"):
            read_checkpoint(path)


def test_tensors_in_any_memory_order_are_written(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    turned = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    write_checkpoint(path, {"a": turned}, {})
    assert torch.equal(read_checkpoint(path)[0]["a"], turned.detach())


class Crash(BaseException):
    """The end of the process; no handler of ours may catch it."""


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_crash_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    path, text = tmp_path / "x.safetensors", tmp_path / "run.json"
    write_checkpoint(path, TENSORS, DESCRIPTION)
    write_text(text, "old")

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync", crash) if at == "fsync" else (Path, "replace", crash)))
        with pytest.raises(Crash):
            write_checkpoint(path, {"a": torch.zeros(9)}, {})
        with pytest.raises(Crash):
            write_text(text, "new")
    assert read_description(path)["seed"] == 7
    assert torch.equal(read_checkpoint(path)[0]["a"], TENSORS["a"])
    assert text.read_text(encoding="utf-8") == "old"
    # what the crash left beside it is in nobody's way
    write_checkpoint(path, {"a": torch.zeros(9)}, {})
    write_text(text, "new")
    assert text.read_text(encoding="utf-8") == "new"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.json", "x.safetensors"]


def test_a_disk_that_refuses_is_one_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "not" / "there"
    with pytest.raises(CheckpointError, match=r"cannot be written"):
        write_checkpoint(nowhere / "x.safetensors", TENSORS, {})
    with pytest.raises(CheckpointError, match=r"run\.json: cannot be written \(No such file"):
        write_text(nowhere / "run.json", "x")


def _foreign(metadata: dict[str, str] | None, path: Path) -> None:
    save_file(TENSORS, path, metadata=metadata)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "not a limner checkpoint"),
        ({"format": "pt"}, "not a limner checkpoint"),
        ({"limner": "not json"}, "not a limner checkpoint"),
        ({"limner": "[" * 100_000}, "not a limner checkpoint"),
        ({"limner": "[1]"}, "not a limner checkpoint"),
        ({"limner": '"text"'}, "not a limner checkpoint"),
        ({"limner": "{}"}, "checkpoint format None, this limner reads 4"),
        (
            {"limner": json.dumps({"format": 1})},
            "checkpoint format 1, this limner reads 4; train the run again",
        ),
        ({"limner": json.dumps({"format": 5})}, "checkpoint format 5, this limner reads 4"),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, metadata: dict[str, str] | None, message: str) -> None:
    path = tmp_path / "x.safetensors"
    _foreign(metadata, path)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(path)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(CheckpointError, match="no such checkpoint"):
            read_checkpoint(path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_truncated_and_random_files_are_refused(tmp_path: Path, data: st.DataObject) -> None:
    path, damaged = tmp_path / "x.safetensors", tmp_path / "damaged.safetensors"
    if not path.exists():
        write_checkpoint(path, TENSORS, DESCRIPTION)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1).map(lambda size: whole[:size]) | st.binary(max_size=200))
    damaged.write_bytes(cut)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(damaged)
    assert "\n" not in str(caught.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_header_is_refused_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    path, damaged = tmp_path / "x.safetensors", tmp_path / "damaged.safetensors"
    if not path.exists():
        write_checkpoint(path, TENSORS, DESCRIPTION)
    content = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    content[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    damaged.write_bytes(content)
    with contextlib.suppress(CheckpointError):
        read_checkpoint(damaged)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": None}, "tensor 'bias' is missing"),
        ({"weight": torch.zeros(3, 2)}, r"tensor 'weight' has shape \(3, 2\), expected \(2, 3\)"),
        ({"other": torch.zeros(1)}, "unknown tensor 'other'"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change: dict[str, Any], message: str) -> None:
    module = torch.nn.Linear(3, 2)
    before = module.weight.detach().clone()
    tensors = {"weight": torch.ones(2, 3), "bias": torch.ones(2), **change}
    given_tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with pytest.raises(CheckpointError, match=message):
        load_into(module, given_tensors, Path("x.safetensors"))
    assert torch.equal(module.weight, before)


@pytest.mark.parametrize("assign", [False, True])
def test_a_tokenizer_among_the_tensors_is_no_weight(assign: bool) -> None:
    module = torch.nn.Linear(3, 2)
    tensors = {
        "weight": torch.ones(2, 3),
        "bias": torch.zeros(2),
        TOKENIZER: torch.zeros(9, dtype=torch.uint8),
    }
    load_into(module, tensors, Path("x"), assign=assign)
    assert module(torch.ones(1, 3)).tolist() == [[3.0, 3.0]]


def test_assigned_tensors_are_the_modules_own_unless_laid_out_otherwise() -> None:
    module = torch.nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    tensors = {"weight": torch.randn(4, 2, 3, 3), "bias": torch.zeros(4, dtype=torch.float64)}
    module.bias.requires_grad_(False)
    load_into(module, tensors, Path("x"), assign=True)
    assert torch.equal(module.weight, tensors["weight"])
    assert module.weight.is_contiguous(memory_format=torch.channels_last)
    assert (module.bias.dtype, module.bias.requires_grad) == (torch.float32, False)
    linear = torch.nn.Linear(3, 2)
    whole = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    load_into(linear, whole, Path("x"), assign=True)
    assert linear.weight.data_ptr() == whole["weight"].data_ptr()
    assert linear.weight.requires_grad


def test_what_was_read_is_safe_from_a_file_that_is_overwritten_in_place(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_checkpoint(path, {"a": torch.ones(100_000)}, {})
    tensors, _ = read_checkpoint(path)
    with path.open("rb+") as handle:
        handle.truncate(0)
    assert bool((tensors["a"] == 1).all())


def test_tensors_that_fit_are_loaded() -> None:
    module = torch.nn.Linear(3, 2)
    load_into(module, {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}, Path("x"))
    assert module(torch.ones(1, 3)).tolist() == [[3.0, 3.0]]


def test_others_may_read_a_checkpoint_if_the_user_lets_them(tmp_path: Path) -> None:
    for umask, mode in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(umask)
        try:
            write_checkpoint(tmp_path / "s.safetensors", {"weight": torch.ones(1)}, {})
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "s.safetensors").stat().st_mode) == mode


def test_what_a_killed_process_left_goes_with_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors writes to a file of a name of its own, beside the one it is told."""
    path = tmp_path / "last.safetensors"

    def killed(tensors: object, file: Path, metadata: object) -> None:
        (file.parent / ".tmpAbC123").write_bytes(b"half of it")
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr("limner.inference.checkpoint.save_file", killed)
            with pytest.raises(KeyboardInterrupt):
                write_checkpoint(path, TENSORS, DESCRIPTION)
    for name in ("last.safetensors", "other.safetensors"):
        write_checkpoint(tmp_path / name, TENSORS, DESCRIPTION)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["last.safetensors", "other.safetensors"]
