"""The commands of docs/team.md do what the page says: a shell runs each as it is typed, in their order, on toys.

Ours are only what the page presumes: a run (`RUN`), a folder of pictures, what is known of them, and a new picture. The
environments that `pip` would make are programs of this one.
"""

import base64
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from limner.data.records import Dataset
from limner.server.audit import verify
from limner.store.files import StoreFiles
from tests.forked_commands import forked_limner
from tests.search.fake import draw
from tests.toy import draw_toys

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "team.md").read_text(encoding="utf-8")
# what makes an environment; tests/test_docs_commands.py looks at the same of other pages
OF_PIP = re.compile(
    r"python3 -m venv \.venv(-new)?|\. \.venv(-new)?/bin/activate"
    r"|(\.venv-new/bin/)?pip install 'CHECKOUT\[server,transformers\]'"
)


def commands() -> list[str]:
    """What a reader types, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [line[2:] for line in lines]


@pytest.fixture
def operator(toys: Dataset, toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder as a new operator has it."""
    del toys
    # short, since the path of a socket file has at most 108 bytes
    folder = tmp_path_factory.mktemp("team")
    (folder / "RUN").symlink_to(toy_run)
    (folder / "NEW-RUN").symlink_to(toy_run)
    (folder / "CHECKOUT").symlink_to(ROOT)
    pictures = folder / "PICTURES"
    draw_toys(pictures)
    names = [json.loads(line)["file"] for line in (pictures / "captions.jsonl").read_text().splitlines()]
    with (folder / "people.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "identity"])
        table.writerows(
            (f"PICTURES/{name}", "ann" if place < 3 else f"p{place}")
            for place, name in enumerate(dict.fromkeys(names))
        )
    shutil.copy(draw(folder / "drawn.png", 1234), folder / "new.jpg")
    later = base64.b64encode(draw(folder / "later.png", 1235).read_bytes()).decode()
    (folder / "late.json").write_text(json.dumps({"name": "late.png", "image": later}))
    (toml,) = re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    (folder / "server.toml").write_text(toml)
    # each of thirty commands would import torch for 3 s
    with forked_limner(tmp_path_factory.mktemp("limner")) as program:
        for path in ("bin/limner", ".venv-new/bin/limner"):
            made = folder / path
            made.parent.mkdir(parents=True)
            made.write_text(program)
            made.chmod(0o755)
        (folder / "bin" / "python").symlink_to(sys.executable)
        yield folder


def test_a_new_operator_types_the_page(operator: Path) -> None:
    typed = [line for line in commands() if not OF_PIP.fullmatch(line)]
    assert len(typed) > 30
    # what a backup does not have: a client adds it before the restore
    late = next(place for place, line in enumerate(typed) if line.startswith("sed -i 's/^\\(allow_changes"))
    (again,) = (line for line in typed if "-d @new.json" in line)
    again = again.replace("new.json", "late.json")
    # what comes between the indexing and the signal would be in the old version alone; so nothing is taken then
    link = next(place for place, line in enumerate(typed) if "mv -T next" in line)
    typed[link:link] = [f"if {again}; then false; fi"]
    typed[late:late] = [again]
    # each is named before it runs, so that a failure says which it was
    script = "\n".join(f"echo '#{place}' >&2\n{line}" for place, line in enumerate(typed))
    ending = "trap 'kill $(cat server.pid measure.pid 2>/dev/null) 2>/dev/null || true' EXIT\n"
    environment = {
        **os.environ,
        "PATH": f"{operator / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    log = operator / "typed.log"
    with log.open("w") as out:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", ending + script],
            cwd=operator,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=900,
            check=False,
        )
    said = log.read_text()
    last = int(re.findall(r"^#(\d+)$", said, flags=re.MULTILINE)[-1])
    assert done.returncode == 0, f"{typed[last]}\n{said[-3000:]}"
    # what the page promises of its end: whom was erased is in nothing that is left
    for store in ("current", "backups/after-erasure"):
        files = StoreFiles.open(operator / store)
        assert len(files) > 20
        (late_path,) = [path for path in files.snapshot().columns.paths if "/uploads/" in path]
        assert Path(late_path).read_bytes() == (operator / "later.png").read_bytes()
        assert "ann" not in files.snapshot().columns.identities
    # nor the picture that a client had added of her, before the restore and the other model
    kept = {path.name for path in (operator / "uploads").iterdir()}
    assert kept == {Path(late_path).name, ".limner-uploads"}
    assert verify(operator / "audit.jsonl").sound
    names = {json.loads(line).get("who") for line in (operator / "audit.jsonl").read_text().splitlines()}
    assert {"ann", "ann-2", "camera-3"} <= names
    assert sorted(one.name for one in (operator / "backups").iterdir() if one.is_dir()) == ["after-erasure"]


def test_what_no_test_runs_is_marked() -> None:
    """Other blocks with commands are those that change the machine."""
    kinds = re.findall(r"^```(\w*)\n", PAGE, flags=re.MULTILINE)
    sections = re.split(r"^##+ ", PAGE, flags=re.MULTILINE)
    assert all("*As root*" in one[: one.index("```sh\n")] for one in sections if "```sh\n" in one)
    assert set(kinds) <= {"console", "sh", "toml", "text", ""}
