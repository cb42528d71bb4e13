"""Index a folder of images with facts about them, and search among those that meet a condition.

python examples/index_and_filter.py RUN STORE IMAGES "a red square"
"""

import sys
from pathlib import Path

import limner

if len(sys.argv) != 5:
    sys.exit(__doc__)
run, folder, images, sentence = sys.argv[1:]
files = sorted(Path(images).glob("*.png"))
# any JSON values under any names; "identity" and "taken" (a time) have a meaning to limner
facts = {str(file): {"shelf": number % 3, "owner": "library"} for number, file in enumerate(files)}
report = limner.index(limner.load(run), folder, files, metadata=facts)
print(f"{report.added} added, {report.unchanged} unchanged")

with limner.open_store(folder) as store:
    print(store.search(sentence, k=3))  # a table
    answer = store.search(sentence, k=3, where={"shelf": 2})
    for hit in answer:
        print(f"{hit.rank}. {hit.score:+.3f} {hit.name} on shelf {hit.metadata['shelf']}")
    print(store.explain(sentence, answer[0].id))  # what each word adds to the best hit's score
