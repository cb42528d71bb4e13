"""An export in ONNX without limner: python examples/read_an_export.py EXPORT PICTURE SENTENCE prints the score."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

if len(sys.argv) != 4:
    sys.exit(__doc__)
folder, picture, sentence = Path(sys.argv[1]), *sys.argv[2:]
about = json.loads((folder / "export.json").read_text(encoding="utf-8"))
images, size = about["images"], about["images"]["resize"]
image: Image.Image = Image.open(picture)
if images["scaled_decoding"]:  # a JPEG at 1/2, 1/4 or 1/8
    image.draft(None, (np.max(size), np.max(size)))
image = ImageOps.exif_transpose(image).convert("RGB")
if isinstance(size, int):  # the shorter side
    whole = round if images["long_side"] == "rounded" else int
    size = [whole(side * size / min(image.size)) for side in image.size[::-1]]
image = image.resize(size[::-1], Image.Resampling[images["interpolation"].upper()])
sides = zip(image.size[::-1], images["crop"], strict=True)
pixels = np.asarray(image)[tuple(slice((has - cut) // 2, (has + cut) // 2) for has, cut in sides)]
if about["tokenizer_file"]:
    from tokenizers import Tokenizer

    fast = Tokenizer.from_file(str(folder / "tokenizer.json"))
    fast.no_padding()
    fast.enable_truncation(about["words"])
    ids = fast.encode(sentence, add_special_tokens=about["tokenizer"]["special_tokens"]).ids
else:
    known = about["tokenizer"]["words"]
    ids = [known.index(word) for word in re.findall(r"[^\W_]+", sentence.lower()) if word in known]
found, row = [], ([id + 1 for id in ids] + [0] * about["words"])[: about["words"]]
for name, rows in (("image", pixels[None]), ("text", np.array([row]))):
    tower = about["towers"][name]
    session = onnxruntime.InferenceSession(folder / tower["file"])
    found.append(session.run(["embeddings"], {tower["input"]: rows})[0][0])
print(f"score {found[0] @ found[1]:.4f}")
