"""The hub without a network: its cache as its own library lays it out, and its interface as a record of calls."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def put(files: Path, cache: Path, repository: str, *, commit: str = COMMIT, ref: str = "main") -> Path:
    """Lay a folder of files out as a repository of the cache: blobs, a snapshot of links to them, and a ref."""
    root = cache / f"models--{repository.replace('/', '--')}"
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / ref).write_text(commit)
    snapshot = root / "snapshots" / commit
    for file in (path for path in files.rglob("*") if path.is_file()):
        content = file.read_bytes()
        blob = root / "blobs" / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content)
        link = snapshot / file.relative_to(files)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return snapshot


def use(cache: Path, patch: pytest.MonkeyPatch) -> None:
    """Let the library read this cache, and ask no network."""
    from huggingface_hub import constants

    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setattr(constants, "HF_HUB_OFFLINE", True)
    patch.setenv("HF_HUB_OFFLINE", "1")


class FakeApi:
    """`huggingface_hub.HfApi` that writes down what it is asked, with the files of an upload."""

    calls: list[tuple[str, dict[str, Any]]]
    files: dict[str, bytes]
    refuse: Exception | None = None

    def __init__(self, **_: Any) -> None:
        pass

    def create_repo(self, repo_id: str, **options: Any) -> None:
        type(self).calls.append(("create", {"repo_id": repo_id, **options}))
        if (error := type(self).refuse) is not None:
            raise error

    def update_repo_settings(self, repo_id: str, **options: Any) -> None:
        type(self).calls.append(("settings", {"repo_id": repo_id, **options}))

    def upload_folder(self, *, folder_path: str, **options: Any) -> None:
        root = Path(folder_path)
        type(self).files = {
            path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
        }
        type(self).calls.append(("upload", options))


def fake_api(patch: pytest.MonkeyPatch) -> type[FakeApi]:
    """Put a new record in the place of the library's interface."""
    import huggingface_hub

    class Recorded(FakeApi):
        calls: list[tuple[str, dict[str, Any]]] = []  # noqa: RUF012 - a new one for each test
        files: dict[str, bytes] = {}  # noqa: RUF012

    patch.setattr(huggingface_hub, "HfApi", Recorded)
    return Recorded
