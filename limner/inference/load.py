"""Load a run: its chosen checkpoint as a network on a device, with tokenizer and transform of images."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from limner.arguments import PATH, expect
from limner.data.tokenizers import tokenizer_from_description
from limner.data.transforms import ImageSettings
from limner.errors import CheckpointError, SettingsError
from limner.inference.checkpoint import (
    CALLED,
    SELECTED_ON,
    TOKENIZER,
    TRAINED_ON,
    load_into,
    read_checkpoint,
)
from limner.inference.encoding import Encoding
from limner.inference.openvino_library import require_openvino
from limner.inference.precision import InferenceEngine, Precision, default_device, measuring_precision
from limner.inference.run_file import checkpoint_path
from limner.inference.sentence_transformer import SentenceTransformerRun
from limner.inference.trained import TrainedModel
from limner.models.co_attention import CoAttentionSettings
from limner.models.dual_encoder import DualEncoder, DualEncoderSettings
from limner.models.registry import ModelSettings, build_network
from limner.settings import Settings


class _Model(Settings):
    """The setting that says which network a checkpoint holds."""

    model: ModelSettings
    """The network."""


def load_model(
    folder: str | Path,
    *,
    stage: str | None = None,
    device: str | None = None,
    precision: Precision | None = None,
    engine: InferenceEngine = "torch",
) -> TrainedModel:
    """Load a run folder's chosen checkpoint, that of one `stage`, or a checkpoint file itself.

    `hf:ORG/NAME` is a run of the Hugging Face hub, `hf:ORG/NAME@REVISION` one of its revisions
    (`limner.inference.hub_runs`).
    `precision` None computes in fp32 on a CPU, so that a run has the same figures on every processor, and elsewhere in
    what its recipe trains with; "auto" takes bf16 where the device multiplies it natively.
    `engine` "openvino" runs the image backbone with OpenVINO on the CPU (`limner.inference.image_engine`). Raises
    `CheckpointError` when there is no checkpoint or it is damaged, `SettingsError` for an engine that cannot be had. A
    run of a SentenceTransformer (`limner.inference.sentence_transformer`) computes in fp32, whatever `precision` is.
    """
    expect(folder, PATH, "a loaded model, or a run's folder, its checkpoint or hf:ORG/NAME,")
    path = checkpoint_path(Path(folder), stage)
    tensors, description = read_checkpoint(path)
    if description.get("system") == CALLED:
        if engine == "openvino":
            raise SettingsError(f"{path}: a SentenceTransformer runs with torch; leave out the engine")
        return SentenceTransformerRun(path, description, tensors, device)
    learnt = {name: tensors.pop(name) for name in (TRAINED_ON, SELECTED_ON) if name in tensors}
    try:
        content = tensors.pop(TOKENIZER, None)
        tokenizer = tokenizer_from_description(
            dict(description["tokenizer"]), None if content is None else content.numpy().tobytes()
        )
        settings = _Model.parse({"model": description["model"]}).model
        images = ImageSettings.parse(dict(description["images"]))
        above = description["cross_encoder"]
        cross_encoder = None if above is None else CoAttentionSettings.parse(above)
        files = {part: dict(content) for part, content in dict(description["files"]).items()}
    # apart from what does not fit: a training state is written alike and lacks these keys
    except KeyError as error:
        raise CheckpointError(
            f"{path}: not the checkpoint of a model (its description lacks {error}); give the run's folder"
        ) from None
    except (SettingsError, TypeError, ValueError) as error:
        if package := (description.get("packages") or {}).get(f"encoder {description.get('system')}"):
            raise CheckpointError(
                f"{path}: its encoder '{description['system']}' is of {package}, which is not here, or in another "
                f"version ({error}); install it beside limner"
            ) from None
        raise CheckpointError(
            f"{path}: its description does not fit this limner ({error}); use the version that wrote it"
        ) from None
    # without weights of its own: nothing is downloaded, and the files it was made from may be gone
    model = _network(settings, tokenizer.size, files)
    if cross_encoder is not None:
        model.add_cross_encoder(cross_encoder)
    load_into(model, tensors, path, assign=True)
    if engine == "openvino":
        # refused here and not at the first picture
        require_openvino()
        # OpenVINO computes on the CPU, so an accelerator is not what "no device given" means
        device = device or "cpu"
    # eval: a new module is in training mode, and dropout would make each embedding another
    model.to(torch.device(device) if device else default_device()).eval()
    where = next(model.parameters()).device
    # imported runs have no recipe that was trained by
    arithmetic = measuring_precision(precision, where, description["recipe"].get("precision", "auto"))
    encoding = Encoding(model, arithmetic, flip=images.flip, scales=images.test_scales, engine=engine)
    return TrainedModel(path, description, model, tokenizer, images, encoding, learnt)


def _network(
    settings: DualEncoderSettings, vocabulary_size: int, files: dict[str, dict[str, Any]]
) -> DualEncoder:
    """The network without its weights, from the files that its checkpoint carries (`DualEncoder.files`)."""
    with TemporaryDirectory() as above:
        folders = {part: Path(above) / Path(part).name for part in files}
        for part, folder in folders.items():
            folder.mkdir()
            for name, content in files[part].items():
                # the name alone: a checkpoint of somebody else must not write elsewhere
                (folder / Path(name).name).write_text(json.dumps(content), encoding="utf-8")
        return build_network(settings.with_folders(folders), vocabulary_size, load_weights=False)
