import subprocess
from pathlib import Path

from limner.inference.provenance import commit_of


def _git(folder: Path, *arguments: str) -> str:
    author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(
        ["git", "-C", str(folder), *author, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_commit_and_whether_files_differ_from_it(tmp_path: Path) -> None:
    _git(tmp_path, "init")
    (tmp_path / "file").write_text("one")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "commit", "-m", "one")
    head = _git(tmp_path, "rev-parse", "HEAD")
    assert commit_of(tmp_path) == head
    (tmp_path / "file").write_text("two")
    assert commit_of(tmp_path) == head  # what runs is what was there
    commit_of.cache_clear()
    assert commit_of(tmp_path) == f"{head}+"


def test_no_checkout_has_no_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    (tmp_path / ".git").mkdir()  # not a repository
    commit_of.cache_clear()
    assert commit_of(tmp_path) is None
