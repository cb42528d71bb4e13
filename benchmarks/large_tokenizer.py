"""A pretrained pair with a vocabulary of 256,000 pieces, as SigLIP 2's: CPU seconds and memory of each command.

    python -m benchmarks.large_tokenizer [--layers 2] [--keep FOLDER]

The pair has random weights and a tokenizer.json of our own making, of the size of Gemma's: 256,000 pieces, more than
400,000 merges, bytes for what no piece spells. It is imported, loaded, indexed with and searched with, each in
a process of its own. Memory is the highest resident set above that of a process that imports the same libraries, as a
multiple of the weights' size; pages of a file that is mapped into memory count as well.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open

from benchmarks.measuring import sized, write

PIECES, WIDTH, SIDE = sized(256_000, 4_000), 768, 224
LETTERS = "▁abdeiklmnorstuäé阿海红衣黑包女人"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--layers", type=int, default=2, help="layers of each tower, default 2 (SigLIP 2: 12)"
    )
    parser.add_argument(
        "--keep", type=Path, help="make the files here and leave them; default: a folder for now"
    )
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
        measure(given.keep, given.layers)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), given.layers)


def measure(folder: Path, layers: int) -> None:
    source, run, store, pictures = (folder / name for name in ("source", "run", "store", "pictures"))
    if not (source / "model.safetensors").exists():
        save_pair(source, layers)
    save_pictures(pictures)
    weights = (source / "model.safetensors").stat().st_size
    imports = python("import limner.inference.load, transformers.models.siglip.modeling_siglip")
    steps = {
        "libraries alone": imports,
        "limner import": limner("import", source, run),
        "limner.load": python(f"import limner; limner.load({str(run)!r})"),
        "load and fingerprint": python(f"import limner; limner.load({str(run)!r}).fingerprint"),
        "description alone": python(
            "from pathlib import Path; from limner.inference.checkpoint import read_description; "
            f"read_description(Path({str(run / 'imported.safetensors')!r}))"
        ),
        "limner index, 4 pictures": limner("index", run, store, pictures),
        "limner search": limner("search", store, "a red hat on a table", "--json"),
        "limner store info": limner("store", "info", store),
        "limner models": limner("models"),
    }
    base = steps["libraries alone"]["peak_mb"]
    for figures in steps.values():
        figures["times_the_weights"] = round((figures["peak_mb"] - base) * 1e6 / weights, 2)
    checkpoint = run / "imported.safetensors"
    with safe_open(checkpoint, framework="pt") as handle:
        description = len(handle.metadata()["limner"])
    content: dict[str, Any] = {
        "pieces": PIECES,
        "layers": layers,
        "weights_mb": round(weights / 1e6, 1),
        "tokenizer_json_mb": round((source / "tokenizer.json").stat().st_size / 1e6, 1),
        "checkpoint_mb": round(checkpoint.stat().st_size / 1e6, 1),
        "description_mb": round(description / 1e6, 3),
        "steps": steps,
    }
    print(json.dumps(content, indent=2))
    write("large_tokenizer", content)


def limner(*command: object) -> dict[str, float]:
    return _timed([sys.executable, "-m", "limner", *map(str, command)])


def python(code: str) -> dict[str, float]:
    return _timed([sys.executable, "-c", code])


def _timed(command: list[str]) -> dict[str, float]:
    began = time.perf_counter()
    # one thread: CPU seconds of threads that wait for each other are no work
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            # ru_maxrss would begin at what this process holds when it forks
            peak = max(peak, _highest(process.pid))
            time.sleep(0.02)
        _, status, usage = ended
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return {
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "wall_s": round(time.perf_counter() - began, 2),
        "peak_mb": round(peak / 1e6, 1),
    }


def _highest(process: int) -> int:
    """Bytes of a process's memory at its highest so far; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def save_pictures(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def save_pair(folder: Path, layers: int) -> None:
    """A SigLIP 2 of fixed size with random weights, in the files that the hub has."""
    from transformers import SiglipConfig, SiglipModel
    from transformers.initialization import no_init_weights

    folder.mkdir(parents=True, exist_ok=True)
    sizes = {
        "hidden_size": WIDTH,
        "intermediate_size": 4 * WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": 12,
    }
    text = {**sizes, "vocab_size": PIECES, "max_position_embeddings": 64, "projection_size": WIDTH}
    vision = {**sizes, "image_size": SIDE, "patch_size": 16}
    with no_init_weights():
        model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.fill_(1)
            else:
                parameter.uniform_(-0.03, 0.03)
    model.save_pretrained(folder)
    preprocessor = {
        "image_processor_type": "SiglipImageProcessor",
        "size": {"height": SIDE, "width": SIDE},
        "resample": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor), encoding="utf-8")
    save_tokenizer(folder)


def save_tokenizer(folder: Path) -> None:
    """A tokenizer.json of the size and kind of Gemma's."""
    vocabulary, merges = drawn_pieces()
    special = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, text in enumerate(special)
        ],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "<eos>", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<eos>": {"id": "<eos>", "ids": [1], "tokens": ["<eos>"]}},
        },
        "decoder": None,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
    # as the library writes it: a line each, and signs of every script as they are
    text = json.dumps(content, indent=2, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<eos>",
        "bos_token": "<bos>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "padding_side": "right",
        "model_max_length": 64,
        "model_input_names": ["input_ids"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def drawn_pieces() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Pieces that are joined from earlier ones at random, and every way in which two pieces make a third."""
    draw = random.Random(0)
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{value:02X}>" for value in range(256))]
    joined = list(LETTERS)
    known = set(joined)
    while len(pieces) + len(joined) < PIECES:
        # mostly short ones, as the frequent pieces of a language are
        left, right = (joined[int(len(joined) * draw.random() ** 4)] for _ in range(2))
        if len(left + right) <= 14 and "▁" not in right and left + right not in known:
            known.add(left + right)
            joined.append(left + right)
    vocabulary = {text: number for number, text in enumerate([*pieces, *joined])}
    merges = [
        (text[:cut], text[cut:])
        for text in joined
        for cut in range(1, len(text))
        if text[:cut] in known and text[cut:] in known
    ]
    return vocabulary, merges


if __name__ == "__main__":
    main()
