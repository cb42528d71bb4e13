"""Settings of the search server: rights and limits."""

from pathlib import Path

from pydantic import Field, SecretStr

from limner.settings import Settings


class ServerSettings(Settings):
    """Limits and rights of a search server."""

    # SecretStr: a settings object that is printed or logged does not show it
    token: SecretStr | None = None
    """Token with all rights, which a client sends as `Authorization: Bearer TOKEN`; None = no such token."""

    tokens: Path | None = None
    """File of named tokens with rights (`limner token add`); if neither it nor `token` is set, none is needed."""

    hosts: tuple[str, ...] = ()
    """Names that a request's Host header may have, without port; empty = any name."""

    root_path: str = ""
    """Path below which a reverse proxy shows the server, such as "/photos"; "" = at the root."""

    changes: bool = False
    """True: clients may delete pictures and, with `uploads`, add them."""

    uploads: Path | None = None
    """Folder for pictures that clients add; None = no pictures can be added."""

    audit: Path | None = None
    """File that gets a line for each request that tells or changes something of a picture; None = no record is kept."""

    audit_days: int | None = Field(default=None, ge=1)
    """Days after which a line of the audit log is removed; None = never."""

    audit_fsync: bool = False
    """True: a line of the audit log is on the disk before its request is answered."""

    watch: bool = False
    """True: the store is kept what its folders are (`limner.search.watch`), while the app's lifespan lasts."""

    kept_days: float = Field(default=30.0, ge=0)
    """Days after which the picture of a deleted file is erased, with `watch`."""

    alerts: bool = False
    """True: clients may save alerts and take them away, with `watch`."""

    show_paths: bool = False
    """True: answers and exports have the paths of pictures, and conditions may ask for them."""

    keep_metadata: bool = False
    """True: pictures leave as the files that they are, with EXIF, XMP and IPTC data: place, time, owner."""

    thumbnail_seconds: int = Field(default=0, ge=0)
    """Seconds for which a browser may keep a thumbnail, on its disk, too; 0 = it keeps none."""

    # a page of 500 items stays below `max_answer` then, unless most of them have this many
    max_metadata: int = Field(default=16 * 2**10, ge=2)
    """Largest metadata of a picture that a client adds, in bytes of JSON."""

    max_answer: int = Field(default=4 * 2**20, ge=1024)
    """Bytes after which a list of pictures, hits or sentences ends early; one is told in any case."""

    max_k: int = Field(default=100, ge=1)
    """Largest number of pictures in one answer."""

    max_body: int = Field(default=32 * 2**20, ge=1024)
    """Largest body of a request in bytes; base64 makes a picture in it a third larger."""

    request_seconds: float = Field(default=30.0, gt=0)
    """Longest time from the first wait for a request to the last byte of its body, seconds."""

    answer_seconds: float = Field(default=60.0, gt=0)
    """Longest time that a client may take to read an answer, seconds."""

    # a process may often have 1,024 files open, and the store needs some
    max_connections: int = Field(default=800, ge=1)
    """Largest number of open connections; further ones are refused."""

    # 400 MB of RGB, which two decoding threads may hold at once
    max_pixels: int | None = Field(default=None, ge=1)
    """Most pixels that are decoded of a picture that a client sends; None = as everywhere, 2²⁷ or LIMNER_MAX_PIXELS."""

    max_rerank: int = Field(default=10_000, ge=0)
    """Largest number of pictures that a query may ask the reranker to order again."""

    query_seconds: float = Field(default=30.0, gt=0)
    """Longest time of a query in seconds, waiting included."""

    probe_interval: float = Field(default=5.0, gt=0)
    """Seconds between two probes of the store and the model, whose results `/readyz` tells."""

    # more than `query_seconds`: a probe of the model waits for the batch that has begun
    probe_limit: float | None = Field(default=None, gt=0)
    """Seconds after which a probe counts as failed; None = 10 more than `query_seconds`."""

    drain_seconds: float = Field(default=0.0, ge=0)
    """Seconds for which a server that stops goes on taking requests while `/readyz` says 503."""

    docs: bool = False
    """True: `/docs` shows the API, with a script from the web on the origin where the page keeps the token."""

    rate: float = Field(default=50.0, ge=0)
    """Requests a second that one client may send for long, pictures not counted; 0 = no limit."""

    burst: int = Field(default=100, ge=1)
    """Requests that a client may send at once after a pause."""

    # with 64 clients about twice as many queries a second as 1 gives (benchmarks.server_load)
    max_batch: int = Field(default=64, ge=1)
    """Largest number of queries that are answered together; 1 = each by itself."""

    max_waiting: int = Field(default=512, ge=1)
    """Largest number of requests that may wait for the model; further ones are refused."""
