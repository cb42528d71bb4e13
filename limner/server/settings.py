"""Settings of the search server: rights and limits."""

from pathlib import Path

from pydantic import Field, SecretStr

from limner.settings import Settings


class ServerSettings(Settings):
    """Limits and rights of a search server."""

    token: SecretStr | None = None
    """What a client must send as `Authorization: Bearer TOKEN`; None = nothing."""

    hosts: tuple[str, ...] = ()
    """Names in a request's Host header that are served, without port; empty = any."""

    changes: bool = False
    """Whether clients may delete pictures and, with `uploads`, add them."""

    uploads: Path | None = None
    """Folder that pictures which clients add are written to; None = none can be added."""

    audit: Path | None = None
    """File that a line is added to for each query; None = no record is kept."""

    max_k: int = Field(default=100, ge=1)
    """Most pictures in one answer."""

    max_body: int = Field(default=12 * 2**20, ge=1024)
    """Largest body of a request in bytes; a picture takes 4/3 of its own size in it."""

    body_seconds: float = Field(default=30.0, gt=0)
    """Longest time that a body may take to arrive, seconds."""

    max_pixels: int = Field(default=2**25, ge=1)
    """Largest picture that a client may send, in pixels; a quarter of it where a pixel has more than eight bits."""

    max_rerank: int = Field(default=10_000, ge=0)
    """Most pictures that a query may ask the reranker to re-rank."""

    query_seconds: float = Field(default=30.0, gt=0)
    """Longest time that a query may wait and be answered in, seconds."""

    docs: bool = False
    """Whether `/docs` shows the API, by a script from the web on the origin where the page keeps the token."""

    rate: float = Field(default=50.0, ge=0)
    """Requests a second that one client may go on sending, pictures not counted; 0 = no limit."""

    burst: int = Field(default=100, ge=1)
    """Requests that a client which was quiet may send at once."""

    max_batch: int = Field(default=64, ge=1)
    """Most queries that are answered together; 1 = each by itself."""

    max_waiting: int = Field(default=512, ge=1)
    """Most requests that wait for the model; further ones are turned away."""
