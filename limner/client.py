"""A Python client of the search server.

    with Client("http://127.0.0.1:8000") as server:
        for hit in server.search("a woman in a green coat", k=5):
            print(hit.rank, hit.score, hit.name)

It needs httpx, but neither torch nor a store.
"""

import base64
import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from urllib.parse import quote

from limner.alert_reports import AlertList, SavedAlert
from limner.errors import ServerError, SettingsError, install_hint
from limner.requests import (
    SearchArguments,
    SearchOptions,
    SearchRequest,
    SentencesOptions,
    SentencesRequest,
    requests_of,
    where_strings,
)
from limner.store_reports import ErasureReport
from limner.wire import (
    Answer,
    Explanation,
    FoundSentence,
    ImageInput,
    Item,
    Items,
    SentencesAnswer,
    StoreInfo,
    Where,
    WordMethodName,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

# more would soon meet the server's limit of 50 requests a second for one client
_AT_ONCE = 8
"""Number of requests that `search_many` has under way; the server answers together what arrives together."""

_PAGE = 500
"""Number of pictures that iteration asks for at once; a server gives no more."""


class Client:
    """A connection to a server, with the methods of `limner.search.store.Store`.

    `len(client)` is the number of the store's pictures, iteration goes through them in the order of their paths.

    `url` is the one that `limner serve` printed, `unix:FILE` for a socket file; `token` is the content of its token
    file, with or without a line end; `timeout` is in seconds, for each request. Every method raises `ServerError`, with
    the server's own words if it refuses, and without a status if it cannot be reached.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 60.0) -> None:
        # httpx belongs to an extra: its absence is a message with the next step, not an ImportError
        try:
            import httpx
        except ImportError:
            raise SettingsError(f"the client needs httpx: {install_hint('server')}") from None
        self.url = url.rstrip("/")
        file = self.url.removeprefix("unix:") if self.url.startswith("unix:/") else None
        # a token read from its file ends in a line break, which would be an illegal header
        token = None if token is None else token.strip()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            address = httpx.URL(self.url if file is None else "http://localhost")
        except httpx.InvalidURL:
            address = httpx.URL()
        # httpx takes "localhost:8000" for a URL of the scheme "localhost", and complains at the first request only
        if address.scheme not in ("http", "https") or not address.host:
            raise SettingsError(f"expected a URL such as http://127.0.0.1:8000, got {url[:80]!a}")
        # httpx would raise a UnicodeEncodeError without saying that the token is meant
        if token is not None and not (token.isascii() and token.isprintable()):
            raise SettingsError("token: expected letters, digits and signs of ASCII")
        # kept beside httpx's own, whose timeout is for one request: `search_many` waits between several
        self._seconds = timeout
        transport = None if file is None else httpx.HTTPTransport(uds=file)
        self._http = httpx.Client(base_url=address, headers=headers, timeout=timeout, transport=transport)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __len__(self) -> int:
        # one item, because the server refuses a limit of 0
        return self.items(limit=1).total

    def __iter__(self) -> Iterator[Item]:
        # page by page: a picture that is added or deleted meanwhile may move one past the border of a page
        offset = 0
        while (page := self.items(offset=offset, limit=_PAGE)).items:
            yield from page
            offset += len(page)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def search(self, text: str | None = None, **options: Unpack[SearchArguments]) -> Answer:
        """Find the pictures that fit best: see `limner.search.store.Store.search`."""
        return self._patiently(SearchRequest.parse({"text": text, **options}), 0.0)

    def search_many(
        self, queries: str | Iterable[str | Mapping[str, Any]], **options: Unpack[SearchOptions]
    ) -> list[Answer]:
        """Search for each of many queries, several at once: see `limner.search.store.Store.search_many`.

        If the server says that these are too many requests a second, it waits as long as it is told to.
        """
        # the server has no route for many: it answers together what arrives together (limner.server.batching)
        requests = requests_of(queries, options)
        threads = ThreadPoolExecutor(_AT_ONCE, "limner-client")
        try:
            return list(threads.map(self._patiently, requests))
        finally:
            # after an error the queries that have not begun need not be sent
            threads.shutdown(cancel_futures=True)

    def _patiently(self, request: SearchRequest, seconds: float | None = None) -> Answer:
        """Search, and try again while the server answers 429, for so many seconds; None = as any request may take."""
        # monotonic: a clock that is set would make it wait for ever or not at all
        until = time.monotonic() + (self._seconds if seconds is None else seconds)
        while True:
            try:
                return self._read(self._ask("POST", "/v1/search", _body(request), reads=True), Answer.read)
            except ServerError as error:
                # only 429, which says when to come again: a 503 may be a store that is broken
                if error.status != 429 or time.monotonic() + error.retry_after > until:
                    raise
                time.sleep(error.retry_after)

    def sentences(self, text: str | None = None, **options: Unpack[SentencesOptions]) -> list[FoundSentence]:
        """Find the sentences of the store that describe a picture best, or that are nearest to a text."""
        request = SentencesRequest.parse({"text": text, **options})
        answer = self._ask("POST", "/v1/sentences", _body(request), reads=True)
        return self._read(answer, lambda found: list(SentencesAnswer.read(found).sentences))

    def explain(self, text: str, id: str, *, method: WordMethodName = "masked-regression") -> Explanation:
        """Explain a picture's score for a text."""
        body = {"text": text, "id": id, "method": method}
        return self._read(self._ask("POST", "/v1/explain", body, reads=True), Explanation.read)

    def items(self, *, offset: int = 0, limit: int = 50, where: Where = (), newest: bool = False) -> Items:
        """List some of the pictures that meet conditions, in the order of their paths or the newest first.

        A server ends a list early whose metadata are long: the next part begins at `offset + len(items)`.
        """
        query = {"offset": offset, "limit": limit, "where": where_strings(where), "newest": newest}
        return self._read(self._ask("GET", "/v1/items", query=query), Items.read)

    def item(self, id: str) -> Item:
        """Return one picture."""
        return self._read(self._ask("GET", f"/v1/items/{_key(id)}"), Item.read)

    def add(
        self,
        image: ImageInput,
        *,
        name: str | None = None,
        identity: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Item:
        """Add a picture, if the server allows it; `name` is the file's own unless given.

        The same bytes again: what is given replaces what there is, and the rest stays.
        """
        # `Store.add` keeps the path and needs no name; here only bytes travel
        called = name or (Path(image).name if isinstance(image, str | Path) else "picture")
        body: dict[str, Any] = {"name": called, "image": _in_base64(image)}
        if identity is not None:
            body["identity"] = identity
        if metadata is not None:
            # any mapping is taken, json.dumps writes dicts only
            body["metadata"] = dict(metadata)
        return self._read(self._ask("POST", "/v1/items", body), Item.read)

    def delete(self, id: str) -> int:
        """Take a picture out of the store, if the server allows it.

        Return how many of its files lie in folders that the store follows: the next look indexes them again.
        """
        answer = self._ask("DELETE", f"/v1/items/{_key(id)}")
        return self._read(answer, lambda found: int(found["returning"]))

    def erase(
        self,
        ids: str | Iterable[str] = (),
        *,
        identity: str | None = None,
        paths: str | Path | Iterable[str | Path] = (),
        where: Where = (),
    ) -> ErasureReport:
        """Erase pictures from the server's disk, if it allows it: see `limner.search.store.Store.erase`.

        This may take minutes for a large store, and waits as long. A server knows pictures by id, so `paths` raise a
        `SettingsError`.
        """
        if paths:
            raise SettingsError(
                "paths: a server knows pictures by id; name them so, or by identity and where"
            )
        body = {
            "ids": [ids] if isinstance(ids, str) else list(ids),
            "identity": identity,
            "where": where_strings(where),
        }
        return self._read(self._ask("POST", "/v1/erase", body, patient=True), ErasureReport.read)

    def alerts(self) -> AlertList:
        """List the alerts of the store, with the last pictures that each has found since the server began."""
        return self._read(self._ask("GET", "/v1/alerts"), AlertList.read)

    def save_alert(self, name: str, text: str, *, at_least: float, where: Where = ()) -> SavedAlert:
        """Save an alert, if the server follows folders and allows it: it finds pictures that come from now on."""
        body = {"name": name, "text": text, "at_least": at_least, "where": where_strings(where)}
        return self._read(self._ask("POST", "/v1/alerts", body), SavedAlert.read)

    def delete_alert(self, name: str) -> None:
        """Take an alert away, if the server allows it."""
        self._ask("DELETE", f"/v1/alerts/{quote(name, safe='')}")

    def image(self, id: str) -> bytes:
        """Fetch a picture as JPEG or PNG, without metadata, or its file if the server keeps metadata."""
        return self._ask("GET", f"/v1/images/{_key(id)}").content

    def thumbnail(self, id: str) -> bytes:
        """Fetch a small JPEG of a picture."""
        return self._ask("GET", f"/v1/thumbnails/{_key(id)}").content

    def info(self) -> StoreInfo:
        """Describe the store, its model and the server's limits."""
        return self._read(self._ask("GET", "/v1/info"), StoreInfo.read)

    def health(self) -> bool:
        """Check that the server is up; needs no token."""
        try:
            return self._read(self._ask("GET", "/health"), lambda found: bool(found["status"] == "ok"))
        # any answer but the right one is a no: a proxy before a server that is down answers, too
        except ServerError:
            return False

    def _ask(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, Any] | None = None,
        *,
        patient: bool = False,
        reads: bool = False,
    ) -> "httpx.Response":
        """Send a request. `patient`: wait for its answer without end; `reads`: it changes nothing, as GET."""
        import httpx

        # the other limits stay: only the answer may take as long as it needs
        timeout = httpx.Timeout(self._seconds, read=None if patient else self._seconds)
        try:
            answer = _sent(
                *(self._http, method, path, reads or method == "GET"),
                json=body,
                params=None if query is None else dict(query),
                timeout=timeout,
            )
        # first, because it is an HTTPError as well
        except httpx.TimeoutException:
            raise ServerError(f"{self.url}: no answer in time; raise timeout=") from None
        except httpx.HTTPError as error:
            raise ServerError(f"{self.url}: cannot be reached ({error})") from None
        # from json.dumps: NaN in the metadata, half of a surrogate pair, an object of a caller's own
        except (TypeError, ValueError) as error:
            raise SettingsError(f"the request cannot be written as JSON ({error})") from None
        if not answer.is_success:
            wait = answer.headers.get("Retry-After", "")
            # Retry-After may also be a date, by proxies that limner has not written
            seconds = float(wait) if wait.isdigit() else 1.0
            raise ServerError(f"{self.url}: {_said(answer)}", answer.status_code, seconds)
        return answer

    def _read(self, answer: "httpx.Response", made: Callable[[Any], T]) -> T:
        """Convert an answer's JSON with `made`. Raises `ServerError` for one that is not limner's."""
        try:
            # the address may be that of any other program: its JSON must not end in a traceback of pydantic's
            return made(answer.json())
        except (ValueError, LookupError, TypeError, AttributeError):
            message = "its answer is not that of a limner server; is this the right address?"
            raise ServerError(f"{self.url}: {message}", answer.status_code) from None


def _sent(http: "httpx.Client", method: str, path: str, reads: bool, **request: Any) -> "httpx.Response":
    import httpx

    try:
        return http.request(method, path, **request)
    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
        # a server may close a connection that waits while the next request is on its way: what changes nothing is
        # sent again, once
        if not reads:
            raise
        return http.request(method, path, **request)


def _said(answer: "httpx.Response") -> str:
    """Read the message of a refusal, also of one by a proxy before the server."""
    try:
        body = answer.json()
    except ValueError:
        body = None
    detail = body.get("detail") if isinstance(body, dict) else None
    return str(detail or f"refused with status {answer.status_code}")


def _body(request: SentencesRequest) -> dict[str, Any]:
    """Write a request as JSON values."""
    values = request.model_dump(mode="json", exclude={"image"}, exclude_none=True)
    # base64 in JSON and not a form: pages of other sites may send forms without asking, so the server takes none
    return values if request.image is None else {**values, "image": _in_base64(request.image)}


def _in_base64(image: ImageInput) -> str:
    if isinstance(image, str | Path):
        file = Path(image)
        try:
            image = file.read_bytes()
        except OSError as error:
            raise SettingsError(f"{file}: cannot be read ({error.strerror})") from None
    elif not isinstance(image, bytes | bytearray | memoryview):
        image = _as_png(image)
    return base64.b64encode(image).decode()


def _as_png(image: Any) -> bytes:
    """Write a Pillow image or an array as the bytes of a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    try:
        # PNG, which loses nothing: a JPEG would change the pixels, and with them the scores
        (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, "PNG")
    except (AttributeError, OSError, TypeError, ValueError) as error:
        raise SettingsError(
            f"image: expected a file, bytes, a Pillow image or an array of one, got {type(image).__name__} ({error})"
        ) from None
    return file.getvalue()


def _key(id: str) -> str:
    """Check a key that becomes a part of an address. Raises `SettingsError` for text that could lead elsewhere."""
    # a / or .. in it would lead to another route
    if not id.isalnum():
        raise SettingsError(f"expected a picture's id of 32 hex digits, got {id[:80]!a}")
    return id
