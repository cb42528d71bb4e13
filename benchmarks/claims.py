"""The claims of the benchmarks: which figures of a result file must be within which limits.

`benchmarks.measuring` writes a benchmark's claim and limits into its result file, and `docs/performance.md` holds the
figures against them. Nothing here imports a benchmark, so that the page is made without their libraries.
"""

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import gaps

Path = tuple[str, ...]
"""Keys of a result file, from the outermost on. A `*` in a key stands for any letters, and all that fit are meant."""


@dataclass(frozen=True)
class Limit:
    """A row of the page: a figure of a result file, and what it may be at most or has to be at least.

    - `work`: what was measured.
    - `figure`: keys that lead to it; where several fit, each of them is held against the limit.
    - `unit`: what the limit's number is followed by.
    - `of`: keys of another figure, of which the limit is a multiple; where several fit, the smallest counts.
    - `amx`: the kind of processor that the limit is for; None = any.
    - `gap`: what keeps it from the limit and what would close the gap, in Markdown of `docs/`; shown where it misses.
    """

    work: str
    figure: Path
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    of: Path | None = None
    amx: bool | None = None
    gap: str = ""


@dataclass(frozen=True)
class Claim:
    """A benchmark's claim in a sentence, and its limits.

    - `reference`: what is compared with, if the result file does not say it.
    - `command`: how it is measured, if the result file does not say it.
    """

    text: str
    limits: tuple[Limit, ...]
    reference: str = ""
    command: str = ""

    def content(self) -> dict[str, Any]:
        """The keys of a result file."""
        limits = [
            {key: value for key, value in asdict(one).items() if value is not None and key != "gap"}
            for one in self.limits
        ]
        return {"claim": self.text, "limits": limits}


_RATIO = ("groups", "*", "limner", "ratio")
_PRODUCT = "× the product in float32"

SPEED = {
    "decode": Claim(
        "JPEGs are decoded at 95 % of the speed of the fastest library that gives the same pixels",
        (
            Limit(
                "decoding a JPEG to the pixels that a network crops",
                ("groups", "decode and resize*", "limner", "ratio"),
                "× the fastest library with the same pixels",
                at_least=0.95,
            ),
        ),
    ),
    "exact_search": Claim(
        "exact search for one query takes at most 0.35 times the product in float32, for 64 at most 1",
        (
            Limit(
                "exact search, one query",
                ("groups", "*one query", "limner", "ratio"),
                _PRODUCT,
                at_most=0.35,
                gap=gaps.READING,
            ),
            Limit(
                "exact search, 64 together",
                ("groups", "*64 queries", "limner", "ratio"),
                _PRODUCT,
                at_most=1.0,
                gap=gaps.LOOKING,
            ),
        ),
        reference="`matrix @ query` of NumPy",
        command="python -m benchmarks.exact_search --rows 100000 1000000",
    ),
    "approximate": Claim(
        "a search takes at most 1.3 times usearch's own at the width that was chosen",
        (Limit("approximate search", _RATIO, "× usearch at the same width", at_most=1.3),),
        reference="usearch alone",
    ),
    "cold_search": Claim(
        "one search from the command line takes at most 3.5 s of processor time with torch, 1.3 s by an export",
        (
            Limit(
                "`limner search` in a new process, with torch",
                ("cpu_s", "torch"),
                "s of processor time",
                at_most=3.5,
                gap=gaps.IMPORTS,
            ),
            Limit(
                "`limner search` in a new process, by an exported text tower",
                ("cpu_s", "export*"),
                "s of processor time",
                at_most=1.3,
                gap=gaps.IMPORTS,
            ),
        ),
    ),
    "server_load": Claim(
        "64 clients get 260 answers a second, and the slowest hundredth takes at most three times the median",
        (
            Limit(
                "`limner serve`, 64 clients",
                ("groups", "64 clients*small*", "limner*", "per_second"),
                "queries a second",
                at_least=260,
            ),
            Limit(
                "`limner serve`, 64 clients: the 99th percentile",
                ("seen", "64 clients*small*", "limner*", "p99_ms"),
                "× the median",
                at_most=3,
                of=("seen", "64 clients*small*", "limner*", "p50_ms"),
            ),
        ),
    ),
    "ranking": Claim(
        "all measures of 5,000 × 25,000 × 1,024, both directions, take at most 1.1 times one product in float32",
        (
            Limit(
                "evaluation of 5,000 pictures × 25,000 sentences × 1,024, both directions",
                ("groups", "*beside one product", "limner, all measures", "ms"),
                "× the product of all pairs as a whole",
                at_most=1.1,
                of=("groups", "*beside one product", "one product, as a whole", "ms"),
            ),
            Limit(
                "the same, beside a product into one block of memory",
                ("groups", "*beside one product", "limner, all measures", "ratio"),
                "× the product of all pairs, block by block",
                at_most=1.1,
                gap=gaps.MEASURES,
            ),
        ),
    ),
    "mnil": Claim(
        "a step of MNiL is 40 times as fast as the paper's loop, in memory that does not grow with the set",
        (
            Limit(
                "a step of MNiL",
                ("groups", "step, *", "limner", "ratio"),
                "× the paper's loop",
                at_least=40,
                gap=gaps.SEXTUPLES,
            ),
            Limit(
                "a step of MNiL: memory for 10⁷ pairs",
                ("bytes_of_a_step", "10000000"),
                "× that for 10⁴ pairs",
                at_most=1.5,
                of=("bytes_of_a_step", "10000"),
            ),
        ),
    ),
    "text_path": Claim(
        "the text path learns at 2.5 times the speed of nn.Conv1d in fp32, with AMX at 3.5 times",
        (
            Limit(
                "the text path's training, with AMX",
                ("groups", "*", "limner, bf16", "ratio"),
                "× nn.Conv1d in fp32",
                at_least=3.5,
                amx=True,
            ),
            Limit(
                "the text path's training, without AMX",
                ("groups", "*", "limner*", "ratio"),
                "× nn.Conv1d in fp32",
                at_least=2.5,
                gap=gaps.WORDS,
                amx=False,
            ),
        ),
    ),
    "demo": Claim(
        "`limner demo` takes at most 4 minutes",
        (Limit("`limner demo`", ("seconds", "limner demo"), "s", at_most=240, gap=gaps.DEMO),),
        command="python -m benchmarks.whole_runs demo",
    ),
    "index_start": Claim(
        "`limner index` has embedded its first picture after 4 s with torch, after 2 s by an export",
        (
            Limit("start of `limner index`, with torch", ("first_picture_s", "torch*"), "s", at_most=4.0),
            Limit("start of `limner index`, by an export", ("first_picture_s", "export*"), "s", at_most=2.0),
        ),
    ),
    "ci": Claim(
        "`.ci/run` takes at most 15 minutes",
        (
            Limit(
                "the checks and the whole test suite",
                ("seconds", ".ci/run"),
                "s",
                at_most=900,
                gap=gaps.SUITE,
            ),
        ),
        command="python -m benchmarks.whole_runs ci",
    ),
    "trainer_speed": Claim(
        "on a GPU the trainer makes at least 80 % of the steps that a recorded step alone makes",
        (
            Limit(
                "training on a GPU, steps a second",
                ("steps_per_second",),
                "× the recorded step alone",
                at_least=0.8,
                of=("recorded_steps_per_second",),
            ),
        ),
        command="python -m benchmarks.trainer_speed RUN",
    ),
}
"""Claims about speed that limner sets itself as targets, in the order of the page."""

OTHERS = {
    "recorded_step": Claim(
        "on a GPU a step that was recorded as a CUDA graph is faster than one asked for kernel by kernel",
        (
            Limit(
                "a recorded step on a GPU",
                ("groups", "*", "recorded", "ratio"),
                "× the step kernel by kernel",
                at_least=1.0,
            ),
        ),
    ),
    "all_pairs": Claim(
        "HGAN scores all pairs of a gallery at least 20 times as fast as one pair after the other",
        (Limit("HGAN's words and phrases of all pairs", _RATIO, "× a forward a pair", at_least=20),),
    ),
    "cmce": Claim(
        "a CMCE step over a million identities is no slower than the plain one, in a tenth of its memory",
        (
            Limit("a CMCE step over a million identities", _RATIO, "× the plain step", at_least=1.0),
            Limit(
                "a CMCE step over a million identities: memory",
                ("peak_bytes_above_buffers", "limner"),
                "× the plain step",
                at_most=0.1,
                of=("peak_bytes_above_buffers", "cross-entropy*"),
            ),
        ),
    ),
    "beyond_memory": Claim(
        "of 5 million vectors on disk, a search with any condition finds 99 % of the ten best in 30 ms",
        (
            Limit(
                "5 million vectors on disk: the worst recall@10 of five conditions",
                ("searches", "*", "recall"),
                "of exact search",
                at_least=0.99,
            ),
            Limit(
                "5 million vectors on disk: the slowest median of five conditions",
                ("searches", "*", "ms"),
                "ms",
                at_most=30,
            ),
        ),
    ),
    "many_classes": Claim(
        "beyond weights and gradient a step of the instance loss takes an eighth of the plain one's memory in blocks, "
        "and a quarter with a tenth of the classes, at five times its speed",
        (
            Limit(
                "an instance loss over a million classes: memory",
                ("peak_bytes_above", "blocks*"),
                "× all logits at once",
                at_most=0.125,
                of=("peak_bytes_above", "all logits"),
            ),
            Limit(
                "an instance loss over a tenth of a million classes: memory",
                ("peak_bytes_above", "10% of*"),
                "× all logits at once",
                at_most=0.25,
                of=("peak_bytes_above", "all logits"),
            ),
            Limit(
                "an instance loss over a tenth of a million classes",
                ("groups", "*", "10% of*", "ratio"),
                "× all classes",
                at_least=5.0,
            ),
        ),
    ),
    "sharded_classes": Claim(
        "of processes that share a classifier over a million classes each has its part of one's memory and a tenth of "
        "one's at most, in a step and when the state is written and read",
        tuple(
            Limit(
                f"a classifier over a million classes in {count} processes: memory of each, {moment}",
                ("peak_bytes", moment, f"each of {count} processes"),
                "× one process",
                at_most=limit,
                of=("peak_bytes", moment, "one process"),
            )
            for moment in ("a step", "the state written", "the state read")
            for count, limit in ((2, 0.6), (4, 0.35))
        ),
        reference="one process",
    ),
    "large_ranking": Claim(
        "evaluating 100,000 pictures × 500,000 sentences takes at most 2 GB above the embeddings",
        (
            Limit(
                "evaluation of 100,000 × 500,000 × 512: memory",
                ("peak_bytes_above_embeddings",),
                "bytes above the embeddings",
                at_most=2_000_000_000,
            ),
        ),
    ),
    "reranking": Claim(
        "a query's candidates are re-ranked together, faster than pair by pair",
        (Limit("re-ranking 20 candidates", _RATIO, "× a forward a pair", at_least=1.0),),
    ),
    "text_lstm": Claim(
        "on a CPU limner's LSTM learns faster than nn.LSTM on padded and on packed sentences",
        (
            Limit(
                "the recurrent text path's training",
                _RATIO,
                "× nn.LSTM on packed sentences",
                at_least=1.0,
                of=("groups", "*", "nn.LSTM, packed", "ratio"),
            ),
        ),
    ),
    "backbone": Claim(
        "a MobileNetV2 with batch norm folded into its convolutions embeds faster, and learns faster in bf16",
        (
            Limit(
                "embedding by a folded backbone",
                ("groups", "*, batch *", "folded, fp32", "ratio"),
                "× the plain one in fp32",
                at_least=1.0,
            ),
            Limit(
                "learning in bf16, gradients by limner",
                ("groups", "*learning*", "limner, bf16", "ratio"),
                "× fp32",
                at_least=1.0,
            ),
        ),
    ),
    "engines": Claim(
        "OpenVINO embeds pictures faster than torch, with a cosine of at least 0.99",
        (
            Limit(
                "`limner index --engine openvino`",
                ("groups", "*", "limner*", "ratio"),
                "× torch",
                at_least=1.0,
            ),
            Limit(
                "`limner index --engine openvino`: lowest cosine",
                ("lowest_cosine", "*"),
                "to torch",
                at_least=0.99,
            ),
        ),
    ),
    "slow_clients": Claim(
        "behind nginx and Caddy as they are shipped, under 999 slow clients without a token, every try of the right "
        "one is answered",
        (
            Limit(
                "tries of the right token that are answered",
                ("seen", "*", "answers", "200"),
                "× all tries",
                at_least=1.0,
                of=("tries",),
            ),
        ),
        command="python -m benchmarks.slow_clients STORE --again",
    ),
    "rolling_servers": Claim(
        "two servers over one store on S3 change to a new model one after the other without a failed request, beside a "
        "writer; a killed one loses its begun requests alone",
        (
            Limit("requests that failed while the model was changed", ("failed",), "requests", at_most=0),
            Limit("answers with scores of two models", ("mixed",), "answers", at_most=0),
            Limit("answers without a picture that was there all the time", ("wrong",), "answers", at_most=0),
            Limit(
                "answers to requests that began after a commit, without it",
                ("answers_begun_after_a_commit_without_it",),
                "answers",
                at_most=0,
            ),
            Limit(
                "requests that a killed server lost",
                ("lost_to_the_kill",),
                "× those that it had begun",
                at_most=1,
                of=("begun_at_the_kill",),
            ),
        ),
        command="python -m benchmarks.rolling_servers --moto VENV/bin/moto_server",
    ),
    "site_in_browser": Claim(
        "a site in the browser finds the server's first ten pictures for at least 95 % of the sentences",
        (
            Limit(
                "sentences with the server's first ten, in order",
                ("same_first_ten_in_order",),
                "of all",
                at_least=0.95,
            ),
        ),
        command="python -m benchmarks.site_in_browser STORE SITE",
    ),
    "store_growth": Claim(
        "indexing region features writes their bytes two and a half times at most, into SQLite's log and the file",
        (
            Limit(
                "bytes that indexing writes",
                ("law", "written_for_brought_indexing"),
                "× the bytes that came",
                at_most=2.5,
            ),
        ),
    ),
    "cluster_index": Claim(
        "on one machine, `limner index --cluster local` takes at most 10 % more time than without, beyond its start",
        (Limit("`limner index --cluster local`, beyond its start", ("ratio",), "× without", at_most=1.1),),
    ),
    "cluster_kills": Claim(
        "a store that `limner index --cluster local` makes while it is killed at random has the rows of one process",
        (
            Limit("rows lost by kills beside a cluster", ("rows", "lost"), "rows", at_most=0),
            Limit("rows doubled by them", ("rows", "doubled"), "rows", at_most=0),
            Limit("rows with other facts or thumbnails", ("rows", "other"), "rows", at_most=0),
            Limit(
                "greatest difference of a vector",
                ("rows", "greatest_difference"),
                "in a number",
                at_most=1e-6,
            ),
            Limit(
                "the store is sound by `limner store verify --hashes`",
                ("rows", "sound"),
                "(1 = yes)",
                at_least=1,
            ),
        ),
        reference="the store of one process",
    ),
    "tower_memory": Claim(
        "chunks, checkpointing and LoRA each tune a pair in less memory than the whole batch",
        (
            Limit(
                "tuning a pair in little memory",
                ("groups", "*", "[cl]*", "megabytes"),
                "× the whole batch",
                at_most=1.0,
                of=("groups", "*", "whole batch", "megabytes"),
            ),
        ),
    ),
    "large_tokenizer": Claim(
        "with a vocabulary of 256,000 pieces no command holds the weights twice",
        (
            Limit(
                "memory of each command with a large vocabulary",
                ("steps", "limner*", "times_the_weights"),
                "× the weights",
                at_most=2.0,
            ),
        ),
    ),
}
"""Claims of pages and docstrings, in the order of the page."""

CLAIMS = {**SPEED, **OTHERS}
