"""A Python client of the search server.

    with Client("http://127.0.0.1:8000") as server:
        for hit in server.search("a woman in a green coat", k=5).hits:
            print(hit.rank, hit.score, hit.name)

It needs httpx and nothing else of limner, neither torch nor a store.
"""

import base64
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from limner.errors import ServerError, SettingsError

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


@dataclass(frozen=True)
class Attention:
    """Where the matcher looked: see `limner.wire.Attention`."""

    words: list[str]
    of_regions: list[list[list[float]]] | None
    of_words: list[list[float]] | None
    reader: Literal["step", "region"]
    crop: tuple[float, float, float, float]


@dataclass(frozen=True)
class Hit:
    """A picture that a search found: as `limner.wire.Hit`, with the `name` of its file in place of its path."""

    rank: int
    score: float
    id: str
    name: str
    identity: str | None
    metadata: dict[str, Any]
    taken: datetime | None
    confidence: float | None
    probability: float | None
    group: int | None
    attention: Attention | None = None


@dataclass(frozen=True)
class Answer:
    """What a search found: as `limner.search.query.Answer`; `took_ms` on the server, waiting included."""

    hits: list[Hit]
    total: int
    matching: int
    good: bool | None
    threshold: float | None
    unknown: list[str]
    took_ms: float


@dataclass(frozen=True)
class Explanation:
    """Why a picture has its score: see `limner.search.query.Explanation`."""

    words: list[str]
    weights: list[float] | None
    attention: Attention | None
    score: float
    confidence: float | None
    unknown: list[str]


@dataclass(frozen=True)
class Item:
    """A picture of the server's store."""

    id: str
    name: str
    identity: str | None
    metadata: dict[str, Any]
    taken: datetime | None


@dataclass(frozen=True)
class Items:
    """A part of the server's pictures, and how many there are in all."""

    items: list[Item]
    total: int


@dataclass(frozen=True, slots=True)
class FoundSentence:
    """A sentence of the store: its rank from 1, its cosine, and the key of its picture, where the store holds that."""

    rank: int
    score: float
    text: str
    id: str | None


class Client:
    """A connection to a server.

    `url` is what `limner serve` printed; `token` is what its token file holds, with or without a line end;
    `timeout` is in seconds, for each request. Every method raises `ServerError` with the server's own words where it
    refuses, and without a status where it cannot be reached.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 60.0) -> None:
        try:
            import httpx
        except ImportError:
            raise SettingsError("the client needs httpx: pip install 'limner[server]'") from None
        self.url = url.rstrip("/")
        token = None if token is None else token.strip()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            address = httpx.URL(self.url)
        except httpx.InvalidURL:
            address = httpx.URL()
        if address.scheme not in ("http", "https") or not address.host:
            raise SettingsError(f"expected a URL such as http://127.0.0.1:8000, got {url[:80]!a}")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise SettingsError("token: expected letters, digits and signs of ASCII")
        self._http = httpx.Client(base_url=address, headers=headers, timeout=timeout)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def search(
        self,
        text: str | None = None,
        *,
        image: str | Path | bytes | bytearray | None = None,
        like: str | None = None,
        text_weight: float = 0.5,
        k: int = 10,
        where: Sequence[str] = (),
        after: datetime | str | None = None,
        before: datetime | str | None = None,
        group: Literal["identity", "near"] | None = None,
        rerank: int | Literal["all"] | None = None,
        explain: bool = False,
    ) -> Answer:
        """The pictures that fit best: see `limner.search.query.Query`. `image` is a file, or a file's bytes.

        `after` and `before` are times or their text in ISO 8601.
        """
        body = {
            "text": text,
            "image": None if image is None else _in_base64(image),
            "like": like,
            "text_weight": text_weight,
            "k": k,
            "where": list(where),
            "after": after.isoformat() if isinstance(after, datetime) else after,
            "before": before.isoformat() if isinstance(before, datetime) else before,
            "group": group,
            "rerank": rerank,
            "explain": explain,
        }
        answer = self._ask("POST", "/v1/search", body)
        return self._read(
            answer, lambda found: _made(Answer, {**found, "hits": [_hit(one) for one in found["hits"]]})
        )

    def sentences(
        self,
        text: str | None = None,
        *,
        image: str | Path | bytes | bytearray | None = None,
        like: str | None = None,
        text_weight: float = 0.5,
        k: int = 10,
    ) -> list[FoundSentence]:
        """The sentences of the store that describe a picture best, or that are nearest to a text."""
        body = {
            "text": text,
            "image": None if image is None else _in_base64(image),
            "like": like,
            "text_weight": text_weight,
            "k": k,
        }
        answer = self._ask("POST", "/v1/sentences", body)
        return self._read(answer, lambda found: [_made(FoundSentence, one) for one in found["sentences"]])

    def explain(self, text: str, id: str) -> Explanation:
        """Why a picture has its score for a text."""
        answer = self._ask("POST", "/v1/explain", {"text": text, "id": id})
        return self._read(
            answer, lambda found: _made(Explanation, {**found, "attention": _attention(found["attention"])})
        )

    def items(self, *, offset: int = 0, limit: int = 50, where: Sequence[str] = ()) -> Items:
        """Some of the pictures that meet conditions, in the order of their paths."""
        query = {"offset": offset, "limit": limit, "where": list(where)}
        answer = self._ask("GET", "/v1/items", query=query)
        return self._read(answer, lambda found: Items([_item(one) for one in found["items"]], found["total"]))

    def item(self, id: str) -> Item:
        """One picture."""
        return self._read(self._ask("GET", f"/v1/items/{_key(id)}"), _item)

    def add(
        self,
        image: str | Path | bytes | bytearray,
        *,
        name: str | None = None,
        identity: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Item:
        """Add a picture, where the server lets one; `name` is the file's own unless given."""
        called = name or (Path(image).name if isinstance(image, str | Path) else "picture")
        body = {
            "name": called,
            "image": _in_base64(image),
            "identity": identity,
            "metadata": dict(metadata or {}),
        }
        return self._read(self._ask("POST", "/v1/items", body), _item)

    def delete(self, id: str) -> None:
        """Take a picture out of the store, where the server lets one."""
        self._ask("DELETE", f"/v1/items/{_key(id)}")

    def image(self, id: str) -> bytes:
        """The file of a picture, or a JPEG of it."""
        return self._ask("GET", f"/v1/images/{_key(id)}").content

    def thumbnail(self, id: str) -> bytes:
        """A small JPEG of a picture."""
        return self._ask("GET", f"/v1/thumbnails/{_key(id)}").content

    def info(self) -> dict[str, Any]:
        """What can be searched, and how: the fields of `/v1/info`."""
        return self._read(self._ask("GET", "/v1/info"), dict)

    def health(self) -> bool:
        """Whether the server is there and says that it is well; needs no token."""
        try:
            return self._read(self._ask("GET", "/health"), lambda found: bool(found["status"] == "ok"))
        except ServerError:
            return False

    def _ask(
        self, method: str, path: str, body: object = None, query: Mapping[str, Any] | None = None
    ) -> "httpx.Response":
        import httpx

        try:
            answer = self._http.request(
                method, path, json=body, params=None if query is None else dict(query)
            )
        except httpx.TimeoutException:
            raise ServerError(f"{self.url}: no answer in time; raise timeout=") from None
        except httpx.HTTPError as error:
            raise ServerError(f"{self.url}: cannot be reached ({error})") from None
        except (TypeError, ValueError) as error:
            raise SettingsError(f"the request cannot be written as JSON ({error})") from None
        if not answer.is_success:
            raise ServerError(f"{self.url}: {_said(answer)}", answer.status_code)
        return answer

    def _read(self, answer: "httpx.Response", made: Callable[[Any], T]) -> T:
        """What an answer's JSON stands for. Raises `ServerError` for one that is not limner's."""
        try:
            return made(answer.json())
        except (ValueError, LookupError, TypeError, AttributeError):
            said = "its answer is not that of a limner server; is this the right address?"
            raise ServerError(f"{self.url}: {said}", answer.status_code) from None


def _said(answer: "httpx.Response") -> str:
    """What a refusal says, also one by something that stands before the server."""
    try:
        body = answer.json()
    except ValueError:
        body = None
    detail = body.get("detail") if isinstance(body, dict) else None
    return str(detail or f"refused with status {answer.status_code}")


def _in_base64(image: str | Path | bytes | bytearray) -> str:
    if isinstance(image, bytes | bytearray | memoryview):
        return base64.b64encode(image).decode()
    try:
        return base64.b64encode(Path(image).read_bytes()).decode()
    except OSError as error:
        raise SettingsError(f"{image}: cannot be read ({error.strerror})") from None


def _key(id: str) -> str:
    """A key as a part of an address. Raises `SettingsError` for what could lead elsewhere."""
    if not id.isalnum():
        raise SettingsError(f"expected a picture's id of 32 hex digits, got {id[:80]!a}")
    return id


def _made(cls: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass of those values that it knows: a later server may tell more."""
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in values.items() if name in known})


def _hit(values: Mapping[str, Any]) -> Hit:
    return _made(
        Hit, {**values, "taken": _time(values["taken"]), "attention": _attention(values.get("attention"))}
    )


def _item(values: Mapping[str, Any]) -> Item:
    return _made(Item, {**values, "taken": _time(values["taken"])})


def _attention(values: Mapping[str, Any] | None) -> Attention | None:
    return None if values is None else _made(Attention, {**values, "crop": tuple(values["crop"])})


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
