"""A site in Chromium beside the server's own answers: how soon it answers, and whether it finds the same.

The claims (docs/site.md): the first ten pictures are the server's, in its order, for at least 95 % of the store's own
sentences; the first answer of a page that was never opened before comes within seconds. The site is served from this
machine as `python -m http.server` does, so that no network counts.

    python -m benchmarks.site_in_browser STORE SITE [--sentences 300]

`--random 100000x512` times the ranking alone, of drawn vectors.
"""

import argparse
import functools
import http.server
import json
import random
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.measuring import write
from limner.search.sentences import SentenceTable
from limner.search.store import open_store
from tests.server.browsing import CHROMIUM, QUIET

_LOADS = 3
"""Pages that are opened with nothing in the browser's cache."""

_DONE = "() => !document.body.hasAttribute('data-busy') && document.querySelector('#grid li, .notice')"

_RANKING = """async ([count, dim]) => {
    const { best, vectors } = await import("./page/rank.js");
    const rows = new Uint8Array(count * (4 + 2 * dim)).map(() => 256 * Math.random());
    const drawn = vectors(rows.buffer, count, dim);
    drawn.scales.fill(0.001);
    const query = Float32Array.from({ length: dim }, () => Math.random() - 0.5);
    const took = [];
    for (let turn = 0; turn < 6; turn++) {
        const began = performance.now();
        best(drawn, query, 24);
        took.push(performance.now() - began);
    }
    return took.slice(1);
}"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


def main() -> None:
    """Serve, open, ask, compare."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("site", type=Path)
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--random", default="100000x512")
    given = parser.parse_args()
    store = open_store(given.store, device="cpu")
    texts = sorted({sentence.text for sentence in SentenceTable(store.files).describing()[0]})
    texts = random.Random(1).sample(texts, min(given.sentences, len(texts)))
    # the embedding alone, which is what the page ranks by
    reranks = store.info().reranks
    answers = store.search_many(texts, k=10, rerank=0 if reranks else None)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(given.site))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        firsts = []
        for _ in range(_LOADS):
            page = browser.new_context().new_page()
            began = time.perf_counter()
            page.goto(f"{url}#q=a+dog+in+the+snow")
            page.wait_for_function(_DONE)
            firsts.append(time.perf_counter() - began)
        same = sets = 0
        took: list[float] = []
        ranked: list[float] = []
        for text, answer in zip(texts, answers, strict=True):
            page.fill("#text", text)
            began = time.perf_counter()
            page.press("#text", "Enter")
            page.wait_for_function(_DONE)
            took.append(time.perf_counter() - began)
            names = page.eval_on_selector_all("#grid img", "found => found.map((one) => one.alt)")[:10]
            ranked.append(float(page.evaluate("document.body.dataset.ranked")))
            hits = [hit.name for hit in answer.hits]
            same += names == hits
            sets += set(names) == set(hits)
        drawn = [int(part) for part in given.random.split("x")]
        ranking = page.evaluate(_RANKING, drawn)
        version = browser.version
        browser.close()
    server.shutdown()
    site = json.loads((given.site / "site.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = {
        "pictures": site["pictures"],
        "tower": site["tower"],
        "bytes": site["bytes"],
        "sentences": len(texts),
        "same_first_ten_in_order": same / len(texts),
        "same_first_ten": sets / len(texts),
        "first_answer_s": statistics.median(firsts),
        "next_answer_s": statistics.median(took),
        "ranking_ms": statistics.median(ranked),
        f"ranking_ms_{given.random}": statistics.median(ranking),
        "chromium": version,
    }
    print(json.dumps(found, indent=2))
    write("site_in_browser", found)


if __name__ == "__main__":
    main()
