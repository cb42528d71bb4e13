"""The page splits texts into words and tokens as the models do."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.data.tokenizers import PretrainedTokenizer, WordTokenizer
from limner.data.words import words
from limner.inference.import_model import import_model
from limner.inference.load import load_model
from limner.inference.trained import TrainedModel
from limner.site import write
from limner.site.libraries import TOKENIZERS, library_files
from limner.site.tokens import tokenizer_for_page
from tests import towers
from tests.site.npm import REAL_TOKENIZERS

NODE = shutil.which("node")
PAGE = Path(write.__file__).parent / "page"
pytestmark = pytest.mark.skipif(NODE is None, reason="no node is installed")

UNSEEN = "\u200b\u200d\u200e\u00ad\ufeffａＸ４क"
SCRIPTS = UNSEEN + "aZ éßİıΣσς 09½² ก่า नि 漢字かなガ 한 đỏ ع٣ _-'’.,!\t\n\u00a0\u0301\u0323😀"
TEXTS = st.text(st.one_of(st.sampled_from(SCRIPTS), st.characters(exclude_categories=["Cn", "Co", "Cs"])))


def node(folder: Path, script: str) -> object:
    """What a module prints as JSON."""
    file = folder / "script.mjs"
    file.write_text(script, encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    assert NODE is not None
    said = subprocess.run([NODE, str(file)], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(said.stdout)


def page_in(folder: Path) -> None:
    for name in ("words.js", "tokens.js"):
        shutil.copyfile(PAGE / name, folder / name)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXTS, min_size=200, max_size=200))
def test_words_are_those_of_python(tmp_path: Path, texts: list[str]) -> None:
    page_in(tmp_path)
    found = node(
        tmp_path,
        'import { words } from "./words.js";\n'
        f"console.log(JSON.stringify({json.dumps(texts)}.map(words)));",
    )
    assert found == [words(text) for text in texts]


def read_by_page(
    folder: Path, described: object, content: bytes, texts: list[str], library: Path | None
) -> object:
    page_in(folder)
    (folder / "content.json").write_bytes(content)
    return node(
        folder,
        'import { readFileSync } from "node:fs";\n'
        'import { tokenizer } from "./tokens.js";\n'
        f"const content = JSON.parse(readFileSync({json.dumps(str(folder / 'content.json'))}));\n"
        f"const read = await tokenizer({json.dumps(described)}, content, {json.dumps(str(library))});\n"
        f"console.log(JSON.stringify({json.dumps(texts)}.map(read)));",
    )


SENTENCES = [
    "A man in a red coat rides a bike.",
    "two   blanks\tand a tab",
    "don't, can't! #1 (42)",
    "CAFÉ naïve ΟΔΟΣ İstanbul ½",
    "一个穿红衣服的女人",
    "một cô gái mặc áo đỏ",
    "😀 dog & cat",
    "half \ud800 of a pair",
    "word " * 100,
    "",
]


def test_a_vocabulary_reads_as_the_model_does(toy_run: Path, tmp_path: Path) -> None:
    model = load_model(toy_run, device="cpu", precision="fp32")
    assert isinstance(model.tokenizer, WordTokenizer)
    described, content = tokenizer_for_page(model)
    texts = ["A RED square_on white ground", "zx unknown", "red " * 50, *SENTENCES]
    found = read_by_page(tmp_path, described, content, texts, None)
    assert found == expected(model, texts)


def expected(model: TrainedModel, texts: list[str]) -> list[dict[str, object]]:
    length = model.model.settings.text.words
    return [
        {
            "ids": list(model.tokenizer.tokenize([text], length)[0].token_ids),
            "known": bool(model.tokenizer.known_words(text)),
        }
        for text in texts
    ]


@pytest.mark.skipif(REAL_TOKENIZERS is None, reason="no archive of @huggingface/tokenizers is here")
@pytest.mark.parametrize("kind", ["clip", "siglip", "siglip2", "chinese_clip"])
def test_pieces_are_those_of_the_model(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    assert REAL_TOKENIZERS is not None
    getattr(towers, f"save_{kind}")(tmp_path / "source")
    import_model(str(tmp_path / "source"), tmp_path / "run")
    model = load_model(tmp_path / "run", device="cpu", precision="fp32")
    assert isinstance(model.tokenizer, PretrainedTokenizer)
    library = tmp_path / "tokenizers.js"
    library.write_bytes(library_files(TOKENIZERS, [REAL_TOKENIZERS])[0]["tokenizers.js"])
    described, content = tokenizer_for_page(model)
    assert read_by_page(tmp_path, described, content, SENTENCES, library) == expected(model, SENTENCES)
