"""The container image that searches without PyTorch: what it installs is what limner needs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"

LEFT_OUT = {"torch", "accelerate", "safetensors"}
"""The packages that only a network in PyTorch needs."""

ADDED = {"onnxruntime", "pillow-heif", "tokenizers"}


def requirements(lines: list[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        if match := re.match(r"([A-Za-z0-9-]+)(.*)", line):
            found[match[1]] = match[2]
    return found


def test_it_installs_all_but_pytorch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = requirements([*project["dependencies"], *extras["server"]])
    listed = requirements((DEPLOY / "search-requirements.txt").read_text(encoding="utf-8").splitlines())
    assert wanted.keys() - listed.keys() == LEFT_OUT
    assert listed.keys() - wanted.keys() == ADDED
    for name in listed.keys() - ADDED:
        assert listed[name] == wanted[name], name
    assert listed["onnxruntime"] == requirements(extras["onnx"])["onnxruntime"]


def test_its_image_is_that_of_the_server_otherwise() -> None:
    own, other = ((DEPLOY / name).read_text(encoding="utf-8") for name in ("search.Dockerfile", "Dockerfile"))
    for instruction in ("USER", "HEALTHCHECK", "ENTRYPOINT", "CMD", "RUN useradd"):
        (wanted,) = re.findall(rf"^{instruction}.*?(?<!\\)$", other, flags=re.MULTILINE | re.DOTALL)[:1]
        assert wanted.splitlines()[-1] in own, instruction
    ignored = (DEPLOY / "search.Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored == [
        *(DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines(),
        "!deploy/search-requirements.txt",
    ]
