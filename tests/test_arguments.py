"""Arguments of another kind than the library takes: iterables are read once, all others end in one line.

Calls run in a process of its own: the type checks of the test run would refuse them before limner does.
"""

import json
import subprocess
import sys
from pathlib import Path

import limner
from limner.data.records import Dataset

SETUP = """
import json, sys
import torch
from pathlib import Path
import numpy as np
import limner
run = limner.load(sys.argv[1], device="cpu")
data = limner.open_dataset(sys.argv[2])
pictures = [record.image for record in data.records[:2]]
limner.index(run, sys.argv[3], pictures)
store = limner.open_store(sys.argv[3], run=run)
key = next(iter(store)).id
def told(call):
    try:
        return repr(eval(call))
    except limner.LimnerError as error:
        return f"{type(error).__name__}: {error}"
print(json.dumps([told(call) for call in json.loads(sys.stdin.read())]))
"""

TAKEN = {
    "run.encode_texts(one for one in ['a red bar', 'a bar']).shape[0]": "2",
    "run.encode_queries({'a red bar'}).shape[0]": "1",
    "run.encode_images(one for one in pictures).shape[0]": "2",
    "run.encode_images(pictures[0]).shape[0]": "1",
    "len(store.search_many(one for one in ['a red bar', {'like': key}]))": "2",
    "len(store.search_many('a red bar'))": "1",
    "len(store.search_many({'like': key}))": "1",
    "len(store.search('a red bar', where=(one for one in ['camera=1'])))": "0",
    "store.index(pictures[0]).unchanged": "1",
    "store.index(str(pictures[0])).unchanged": "1",
    "store.index(one for one in pictures).unchanged": "2",
    "limner.index(run, store, (one for one in pictures)).unchanged": "2",
    "store.erase(paths=(one for one in ['/none.png'])).unknown": "('/none.png',)",
    "list(limner.evaluate(run, data, measures=['R@1', 'mAP']).text_to_image)": "['R@1', 'mAP']",
    "list(limner.evaluate(run, data, measures=(one for one in ['mAP,R@1'])).text_to_image)": "['mAP', 'R@1']",
    "store.items(where={'camra': 1})": "Items(0 of 0, no picture has 'camra')",
    "store.add(pictures[0], identity='7').identity": "'7'",
    "store.add(pictures[0], identity='').identity": "None",
    "store.add(pictures[0], metadata={'identity': ' '}).identity": "None",
    "store.add(pictures[0], metadata={'path': None}).metadata.get('path')": "None",
    "store.search('a red bar', where={'camra': 1})": "Answer(0 of 0 pictures, no picture has 'camra')",
    "limner.evaluate(limner.Results([0, 1], [1, 0], scores=[[0, 1], [1, 0]]), measures='R@1').text_to_image": (
        "{'R@1': 100.0}"
    ),
    "limner.Results([0], [0], *[torch.ones(1, 1, requires_grad=True, dtype=torch.bfloat16)] * 2).images.sum()": (
        "np.float32(1.0)"
    ),
    "limner.evaluate((torch.ones(7, 2, requires_grad=True), np.ones((14, 2))), data, measures='R@1').split": "'test'",
    "[(one.image, one.sentences, one.group) for one in [limner.Record('a', 'a dog', 3)]]": (
        "[(PosixPath('a'), ('a dog',), '3')]"
    ),
    "limner.Record(Path('a.png'), ['a dog'], np.int64(3), labels='dog', languages='en').languages": "('en',)",
    "limner.Dataset('x', 'image', [limner.Record('a.png', ('a dog',), 'a')]).records[0].image.name": "'a.png'",
    "limner.Dataset('x', 'image', iter([])).records": "()",
}
REFUSED = {
    "limner.Record('a.png', ('a dog',), None)": "a.png: the name of a group was expected, got None",
    "limner.Record('a.png', ('a dog', 3), 'a')": "a.png: a sentence was expected at place 1, got 3",
    "limner.Record('a.png', None, 'a')": "a.png: a sentence was expected, or several; got None",
    "limner.Record('a.png', (), 'a', labels=3)": "a.png: a label was expected",
    "limner.Record('a.png', (), 'a', 3)": "a.png: the name of a split was expected, got 3",
    "limner.Record('a.png', (), 'a', metadata=[3])": "a.png: a mapping of facts was expected",
    "limner.Record(3, (), 'a')": "Record: image is a int",
    "limner.Dataset('x', 'picture', ())": "'image' or 'identity' was expected as its group_kind, got 'picture'",
    "limner.Dataset('x', 'image', [3])": "Dataset: a record was expected at place 0, got 3",
    "limner.evaluate(limner.Results([0, 1], [0, 1]))": "Results: expected either 'scores' or both 'images' and 'sent",
    "limner.Results([0], [0], np.ones((1, 2)))": "expected either 'scores' or both",
    "limner.Results([0], [0], np.ones((1, 2)), np.ones((1, 2)), [[1.0]])": "expected either 'scores' or both",
    "limner.Results([0], [0], np.ones((1, 2)), np.ones((1, 3)))": "'images' has 2 columns, 'sentences' 3",
    "limner.Results([0], [0], scores=[[1.0], [2.0, 3.0]])": "Results: 'scores' is no array",
    "limner.Results([0], [0], scores=[['a']])": "Results: 'scores' must have two axes of numbers",
    "limner.Results([0], [0], scores=[[1.0]], image_names=['a', 'b'])": "'image_names' has shape (2,), the groups",
    "limner.Results([0], [0], scores=[[1.0]], sentence_names=[3])": "'sentence_names': text was expected at place 0",
    "limner.Results([0], [0], scores=[[1.0]], sentence_languages=[None, 'de'])": "'sentence_languages' has shape (2,)",
    "limner.Results([0], [0], scores=[[1.0]], image_labels=[[1]])": "both 'image_labels' and 'sentence_labels'",
    "limner.evaluate(run, data, rerank='foo')": "evaluate: how many to rerank, or 'all', was expected, got 'foo'",
    "limner.evaluate(run, data, rerank=-1)": "evaluate: how many to rerank, or 'all', was expected, got -1",
    "limner.evaluate(limner.Results([0], [0], scores=[[1.0]]), rerank=3)": "leave out rerank",
    "limner.bench(run, 'x', rerank=0.5)": "bench: how many to rerank, or 'all', was expected, got 0.5",
    "run.encode_texts([None])": "a sentence was expected at place 0, got None",
    "run.encode_texts(['a bar', 3])": "a sentence was expected at place 1, got 3",
    "run.encode_texts([b'x'])": "a sentence was expected at place 0, got b'x'",
    "run.encode_texts(b'x')": "a sentence was expected, or several; got b'x'",
    "run.encode_texts('a bar', progress=True)": "progress: a function was expected",
    "run.encode_images([None])": "pixels) was expected at place 0, got None",
    "run.encode_images(pictures, progress=True)": "progress: a function was expected",
    "store.search_many([None])": "search_many: a text or a mapping of arguments was expected at place 0",
    "store.search('a bar', where=3)": "where: a condition was expected, or several; got 3",
    "store.index(None)": "index: the path of a picture or folder",
    "store.index(pictures, metadata=[1])": "metadata: facts by path, or a .csv or .jsonl file, was expected",
    "limner.index(run, store, pictures, metadata={'a.png': 'a'})": "metadata of 'a.png': a mapping",
    "limner.index(run, store, pictures, progress=True)": "progress: a function was expected",
    "limner.index(3, store, pictures)": "index: a loaded model, a run's folder or the name of a model",
    "limner.index(run, 3, pictures)": "a store: its folder or s3://BUCKET/FOLDER was expected, got 3",
    "limner.reindex(store, run, 'new', progress=True)": "progress: a function was expected",
    "limner.evaluate([np.eye(2), np.eye(2)], data)": "of two arrays was expected, got builtins.list",
    "limner.evaluate((np.eye(2),), data)": "of two arrays was expected, got a tuple of 1",
    "limner.evaluate(None, data)": "of two arrays was expected, got None",
    "limner.evaluate(run, data, measures=['r@1'])": "unknown measure 'r@1'; did you mean 'R@1'?",
    "limner.evaluate(run, data, measures=[])": "no measure was named",
    "limner.evaluate(run, data, measures=[3])": "was expected at place 0, got 3",
    "limner.evaluate(run, data, protocol=3)": "evaluate: the name of a protocol was expected, got 3",
    "limner.evaluate(run, data, folds='a')": "evaluate: the number of folds was expected, got 'a'",
    "limner.evaluate(run, data, progress=True)": "progress: a function was expected",
    "limner.bench(run, 3)": "bench: a set of pairs, or its folder, was expected, got 3",
    "limner.calibrate(run, data, progress=True)": "progress: a function was expected",
    "limner.import_model(3, 'x')": "import_model: a folder, hf:ORG/NAME or st:FOLDER was expected, got 3",
    "limner.push(3, 'a/b')": "push: a run's folder was expected, got 3",
    "limner.push('x', 3)": "push: ORG/NAME of the hub, or a folder, was expected, got 3",
    "limner.get_recipe(3)": "get_recipe: the name of a recipe, or a .json file, was expected, got 3",
    "limner.load(3)": "a loaded model, or a run's folder",
    "limner.train('dual-path-people', data, 'x', settings='seed=x')": "setting 'seed'",
    "limner.train('dual-path-people', data, 'x', settings=[3])": "settings: 'key=value' was expected at place 0",
    "store.add(pictures[0], metadata={'path': 'zz'})": "'path' is the picture's own in conditions",
    "store.add(pictures[0], metadata={' ': 'zz'})": "expected names without blanks at their ends, got ' '",
    "store.add(pictures[0], metadata={1: 'a'})": "expected text as the name of a fact, got 1",
    "store.add(pictures[0], metadata='x=1')": "metadata: facts by name, such as {'camera': 3}, was expected, got 'x=1'",
    "store.item(3)": "the key of a picture (`id` of a hit or item) was expected, got 3",
    "store.erase(3)": "the key of a picture or sentence was expected, or several; got 3",
    "store.explain(3, key)": "explain: a text was expected, got 3",
    "store.delete('/none.png')": "holds no picture '/none.png', by this path or key",
    "store.delete(str(pictures[0]))": "the picture of this path has the key '",
}


def test_one_line_or_an_answer(toys: Dataset, toy_run: Path, tmp_path: Path) -> None:
    calls = [*TAKEN, *REFUSED]
    done = subprocess.run(
        [sys.executable, "-c", SETUP, str(toy_run), toys.source, str(tmp_path / "store")],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    answers = dict(zip(calls, json.loads(done.stdout), strict=True))
    wrong = {call: answers[call] for call, answer in TAKEN.items() if answers[call] != answer}
    wrong |= {call: answers[call] for call, said in REFUSED.items() if said not in answers[call]}
    assert not wrong
    assert all("Error: " in answers[call] and "\n" not in answers[call] for call in REFUSED)


def test_a_dataset_prints_its_counts(toys: Dataset) -> None:
    counts = "36 pictures (train 22, val 7, test 7), 72 sentences"
    assert repr(toys) == f"Dataset({toys.source!r}, {counts})"
    assert repr(limner.Dataset("mine", "image", ())) == "Dataset('mine', 0 pictures, 0 sentences)"
