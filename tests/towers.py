"""Tiny pretrained pairs of our own making: random weights, a tokenizer trained here, the files that a hub has."""

import io
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from limner.inference.import_model import import_model

SENTENCES = (
    "A woman in a blue shirt carries a black bag.",
    "A man with a red hat rides an old green bicycle.",
    "Two dogs run along the beach; one is brown and white.",
    "Eine Frau in einem blauen Hemd trägt eine schwarze Tasche.",
    "一个穿着蓝色衬衫的女人背着一个黑色的包。",
    "Một người phụ nữ mặc áo sơ mi xanh mang túi đen.",
    "a red square on white, a blue circle on black, a green bar on grey ground in yellow",
)
"""What the tokenizers are trained on, again and again."""

LENGTH = 16
SIDE = 32
PATCH = 8


def clip_run(folder: Path) -> Path:
    """Import a tiny CLIP, and return its run."""
    (folder / "source").mkdir(parents=True)
    save_clip(folder / "source")
    import_model(str(folder / "source"), folder / "run")
    return folder / "run"


def word_pieces() -> Any:
    """A small tokenizer of bytes, as CLIP's: it can spell everything."""
    tokenizer = Tokenizer(models.BPE(unk_token=None, end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    # training numbers the same pieces in another order each time, and with them a model would find other pictures
    trained = json.loads(tokenizer.to_str())["model"]
    pieces = sorted(trained["vocab"], key=lambda piece: (len(piece), piece))
    merges = sorted(map(tuple, trained["merges"]), key=lambda pair: (len("".join(pair)), pair))
    numbers = {piece: number for number, piece in enumerate(pieces)}
    tokenizer.model = models.BPE(numbers, merges, end_of_word_suffix="</w>")
    # behind all others, as in CLIP's vocabulary: the end of a text is its highest id
    tokenizer.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    first, last = (tokenizer.token_to_id(text) for text in ("<|startoftext|>", "<|endoftext|>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>",
        special_tokens=[("<|startoftext|>", first), ("<|endoftext|>", last)],
    )
    return tokenizer


def gemma_pieces() -> Any:
    """A small tokenizer in the manner of Gemma's, with bytes for what it has no piece for."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    # no piece spans two words, as in those that SentencePiece trained
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=[*special, *bytes_], show_progress=False)
    tokenizer.train_from_iterator([*SENTENCES, *(text.lower() for text in SENTENCES)] * 3, trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    end = tokenizer.token_to_id("<eos>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", end)]
    )
    return tokenizer


def bert_pieces() -> Any:
    """A small tokenizer as BERT's: letters, and every second word in one piece."""
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words = {
        word
        for sentence in SENTENCES
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(sentence))
    }
    letters = sorted(set("".join(words)))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # not trained: the trainer of word pieces finds others in each process, so that no two would share a recorded tower
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *sorted(words)[::2]])
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.add_special_tokens(special)
    ends = [(text, tokenizer.token_to_id(text)) for text in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def save_tokenizer(folder: Path, tokenizer: Any, **settings: Any) -> None:
    """tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    both = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LENGTH}
    (folder / "tokenizer_config.json").write_text(json.dumps({**both, **settings}), encoding="utf-8")


def save_clip_tokenizer(folder: Path, **changes: Any) -> Any:
    """CLIP's files; the padding token is the end of text, as OpenAI's."""
    tokenizer = word_pieces()
    own = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    read = {"model_input_names": ["input_ids", "attention_mask"]}
    save_tokenizer(folder, tokenizer, **{**own, **read, **changes})
    return tokenizer


def save_gemma_tokenizer(folder: Path, **changes: Any) -> Any:
    """SigLIP 2's files: padding on the right, no mask."""
    tokenizer = gemma_pieces()
    own = {f"{name}_token": f"<{name}>" for name in ("eos", "bos", "unk", "pad")}
    read = {"padding_side": "right", "model_input_names": ["input_ids"]}
    save_tokenizer(folder, tokenizer, **{**own, **read, **changes})
    return tokenizer


def save_bert_tokenizer(folder: Path, **changes: Any) -> Any:
    """BERT's files."""
    tokenizer = bert_pieces()
    own = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep", "mask")}
    read = {"model_input_names": ["input_ids", "attention_mask"]}
    save_tokenizer(folder, tokenizer, **{**own, **read, **changes})
    return tokenizer


def save_preprocessor(folder: Path, **changes: Any) -> None:
    """preprocessor_config.json as CLIP's: the shorter side, a crop, bicubic."""
    values = {
        "image_processor_type": "CLIPImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": SIDE},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": {"height": SIDE, "width": SIDE},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.48, 0.46, 0.41],
        "image_std": [0.27, 0.26, 0.28],
        "do_convert_rgb": True,
        **changes,
    }
    kept = {name: value for name, value in values.items() if value is not None}
    (folder / "preprocessor_config.json").write_text(json.dumps(kept), encoding="utf-8")


def squashed(kind: str = "SiglipImageProcessor") -> dict[str, Any]:
    """SigLIP's preprocessing: a square whatever the ratio of the sides."""
    return {
        "image_processor_type": kind,
        "size": {"height": SIDE, "width": SIDE},
        "do_center_crop": None,
        "crop_size": None,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }


def sizes(**changes: Any) -> dict[str, Any]:
    """The sizes that a tower's configuration takes."""
    return {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        **changes,
    }


def vision(**changes: Any) -> dict[str, Any]:
    """The sizes of a vision tower."""
    return sizes(image_size=SIDE, patch_size=PATCH, **changes)


def draw_weights(model: torch.nn.Module, seed: int = 0) -> None:
    """Weights far enough from zero that every part of a tower moves the embedding, positions and biases included."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.dim() > 1:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=random))
            elif "norm" in name.lower() and name.endswith("weight"):
                parameter.copy_(1 + 0.2 * torch.randn(parameter.shape, generator=random))
            else:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=random))


def save_clip(folder: Path, *, eos: int | None = None, dtype: torch.dtype = torch.float32) -> Any:
    """A CLIP; `eos=2` as in the configurations of old files."""
    from transformers import CLIPConfig, CLIPModel

    tokenizer = save_clip_tokenizer(folder)
    end = tokenizer.token_to_id("<|endoftext|>")
    text = sizes(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=LENGTH,
        eos_token_id=end if eos is None else eos,
        bos_token_id=end - 1,
        pad_token_id=end,
    )
    config = CLIPConfig(text_config=text, vision_config=vision(), projection_dim=24)
    return _saved(folder, CLIPModel(config), dtype)


def save_siglip(folder: Path, **tokenizer_settings: Any) -> Any:
    """A SigLIP of fixed size, with a tokenizer as SigLIP 2's."""
    from transformers import SiglipConfig, SiglipModel

    tokenizer = save_gemma_tokenizer(folder, **tokenizer_settings)
    text = sizes(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=LENGTH, projection_size=32)
    model = _saved(folder, SiglipModel(SiglipConfig(text_config=text, vision_config=vision())))
    save_preprocessor(folder, **squashed())
    return model


def save_spiece(folder: Path, sentences: tuple[str, ...] = SENTENCES, **trainer: Any) -> None:
    """SigLIP 1's files: spiece.model and its settings, no tokenizer.json."""
    from sentencepiece import SentencePieceTrainer

    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([text.lower() for text in sentences] * 5),
        model_writer=written,
        **{
            "vocab_size": 240,
            "model_type": "unigram",
            "hard_vocab_limit": False,
            "pad_id": 0,
            "eos_id": 1,
            "unk_id": 2,
            "bos_id": -1,
            "minloglevel": 2,
            **trainer,
        },
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spiece.model").write_bytes(written.getvalue())
    settings = {
        "tokenizer_class": "SiglipTokenizer",
        "do_lower_case": True,
        "eos_token": "</s>",
        "pad_token": "</s>",
        "unk_token": "<unk>",
        "model_max_length": 64,
        "model_input_names": ["input_ids"],
    }
    both = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LENGTH}
    (folder / "tokenizer_config.json").write_text(json.dumps({**both, **settings}), encoding="utf-8")


def save_siglip1(folder: Path) -> Any:
    """A SigLIP 1: sentences of 64 tokens, a SentencePiece file for a tokenizer."""
    from transformers import SiglipConfig, SiglipModel

    save_spiece(folder)
    text = sizes(vocab_size=256, max_position_embeddings=64, projection_size=32)
    model = _saved(folder, SiglipModel(SiglipConfig(text_config=text, vision_config=vision())))
    save_preprocessor(folder, **squashed())
    return model


def save_siglip2(folder: Path) -> Any:
    """A SigLIP 2 of variable size (naflex)."""
    from transformers import Siglip2Config, Siglip2Model

    tokenizer = save_gemma_tokenizer(folder)
    text = sizes(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=LENGTH, projection_size=32)
    tower = sizes(patch_size=PATCH, num_patches=(SIDE // PATCH) ** 2)
    model = _saved(folder, Siglip2Model(Siglip2Config(text_config=text, vision_config=tower)))
    save_preprocessor(
        folder,
        **{
            **squashed("Siglip2ImageProcessor"),
            "size": None,
            "patch_size": PATCH,
            "max_num_patches": 16,
            "resample": 2,
        },
    )
    return model


def save_altclip(folder: Path) -> Any:
    """An AltCLIP, whose text tower is an XLM-RoBERTa."""
    from transformers import AltCLIPConfig, AltCLIPModel

    tokenizer = save_bert_tokenizer(folder)
    text = sizes(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=LENGTH + 2,
        project_dim=20,
        pad_token_id=0,
        type_vocab_size=1,
    )
    config = AltCLIPConfig(text_config=text, vision_config=vision(), projection_dim=24)
    return _saved(folder, AltCLIPModel(config))


def save_chinese_clip(folder: Path) -> Any:
    """A Chinese CLIP, whose text tower is a BERT."""
    from transformers import ChineseCLIPConfig, ChineseCLIPModel

    tokenizer = save_bert_tokenizer(folder)
    text = sizes(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=LENGTH, pad_token_id=0)
    config = ChineseCLIPConfig(text_config=text, vision_config=vision(), projection_dim=24)
    return _saved(folder, ChineseCLIPModel(config))


def _saved(folder: Path, model: Any, dtype: torch.dtype = torch.float32) -> Any:
    draw_weights(model)
    model.eval()
    model.to(dtype).save_pretrained(folder)
    save_preprocessor(folder)
    return model.float()


def save_open_clip(folder: Path, *, quick_gelu: bool = False, custom_text: bool = False) -> Any:
    """An open_clip folder and the CLIP of transformers with the same weights.

    The names and shapes of the state dict are open_clip's (`CLIP`, or `CustomTextCLIP` with the prefix "text.").
    """
    from transformers import CLIPConfig, CLIPModel

    tokenizer = save_clip_tokenizer(folder)
    activation = "quick_gelu" if quick_gelu else "gelu"
    width, layers, dim = 32, 2, 24
    text = sizes(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=LENGTH,
        eos_token_id=2,
        hidden_act=activation,
        intermediate_size=4 * width,
    )
    tower = vision(hidden_act=activation)
    tower["intermediate_size"] = 4 * width
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=tower, projection_dim=dim))
    draw_weights(model)
    model.eval()  # type: ignore[no-untyped-call]
    config = {
        "model_cfg": {
            "embed_dim": dim,
            "quick_gelu": quick_gelu,
            "vision_cfg": {
                "image_size": SIDE,
                "layers": layers,
                "width": width,
                "patch_size": PATCH,
                "head_width": 8,
            },
            "text_cfg": {
                "context_length": LENGTH,
                "vocab_size": tokenizer.get_vocab_size(),
                "width": width,
                "heads": 4,
                "layers": layers,
            },
        },
        "preprocess_cfg": {"mean": [0.48, 0.46, 0.41], "std": [0.27, 0.26, 0.28]},
    }
    (folder / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    state = _open_clip_state(model.state_dict(), layers)
    if custom_text:
        state = {
            name if name.startswith(("visual.", "logit_scale")) else f"text.{name}": value
            for name, value in state.items()
        }
    save_file(
        {name: value.contiguous() for name, value in state.items()}, folder / "open_clip_model.safetensors"
    )
    return model


def _open_clip_state(theirs: dict[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
    """The values of transformers' CLIP under open_clip's names, written out one by one."""
    found = {
        "logit_scale": theirs["logit_scale"],
        "positional_embedding": theirs["text_model.embeddings.position_embedding.weight"],
        "token_embedding.weight": theirs["text_model.embeddings.token_embedding.weight"],
        "ln_final.weight": theirs["text_model.final_layer_norm.weight"],
        "ln_final.bias": theirs["text_model.final_layer_norm.bias"],
        "text_projection": theirs["text_projection.weight"].T,
        "visual.class_embedding": theirs["vision_model.embeddings.class_embedding"],
        "visual.positional_embedding": theirs["vision_model.embeddings.position_embedding.weight"],
        "visual.conv1.weight": theirs["vision_model.embeddings.patch_embedding.weight"],
        "visual.ln_pre.weight": theirs["vision_model.pre_layrnorm.weight"],
        "visual.ln_pre.bias": theirs["vision_model.pre_layrnorm.bias"],
        "visual.ln_post.weight": theirs["vision_model.post_layernorm.weight"],
        "visual.ln_post.bias": theirs["vision_model.post_layernorm.bias"],
        "visual.proj": theirs["visual_projection.weight"].T,
    }
    for tower, there in (("", "text_model"), ("visual.", "vision_model")):
        for layer in range(layers):
            ours, source = f"{tower}transformer.resblocks.{layer}", f"{there}.encoder.layers.{layer}"
            for kind in ("weight", "bias"):
                parts = [theirs[f"{source}.self_attn.{part}_proj.{kind}"] for part in "qkv"]
                found[f"{ours}.attn.in_proj_{kind}"] = torch.cat(parts)
                found[f"{ours}.attn.out_proj.{kind}"] = theirs[f"{source}.self_attn.out_proj.{kind}"]
                found[f"{ours}.ln_1.{kind}"] = theirs[f"{source}.layer_norm1.{kind}"]
                found[f"{ours}.ln_2.{kind}"] = theirs[f"{source}.layer_norm2.{kind}"]
                found[f"{ours}.mlp.c_fc.{kind}"] = theirs[f"{source}.mlp.fc1.{kind}"]
                found[f"{ours}.mlp.c_proj.{kind}"] = theirs[f"{source}.mlp.fc2.{kind}"]
    return found


def save_in_cache(home: Path, name: str) -> None:
    """A tiny SigLIP 2 in a cache of the hub, as `HF_HOME` names it."""
    revision = "a" * 40
    model = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = model / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(revision, encoding="utf-8")
    save_siglip(snapshot)
