"""What the page's tests do in a browser: search, wait, drop a picture, change or refuse the server's answers."""

import base64
import io
import json
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
TEXT = "a woman in a blue jacket"
JSON = dict[str, Any]
CARDS = "#grid li[data-id]"


def api(page: "Page", path: str, body: JSON | None = None) -> JSON:
    """What the server says without the page."""
    answer = page.request.get(path) if body is None else page.request.post(path, data=body)
    found: JSON = answer.json()
    return found


def change(page: "Page", path: str, edit: Callable[[JSON], object]) -> None:
    """Lets the page see an edited answer."""

    def handle(route: "Route") -> None:
        response = route.fetch()
        body = response.json()
        edit(body)
        route.fulfill(response=response, json=body)

    page.route(f"**/v1/{path}", handle)


def refuse(page: "Page", path: str, status: int, detail: str, **headers: str) -> None:
    body = json.dumps(
        {"type": "about:blank", "title": f"Refused {status}", "status": status, "detail": detail}
    )
    page.route(
        f"**/v1/{path}",
        lambda route: route.fulfill(
            status=status, body=body, headers={"Content-Type": "application/problem+json", **headers}
        ),
    )


def shown(page: "Page") -> list[str]:
    """Ids of the results, once they are there."""
    page.wait_for_selector(CARDS)
    ids: list[str] = page.eval_on_selector_all(CARDS, "cards => cards.map(card => card.dataset.id)")
    return ids


def wait_for_results(page: "Page", answer: JSON) -> None:
    """Until the results are those of an answer, in its order."""
    page.wait_for_function(
        "ids => String([...document.querySelectorAll('#grid li')].map(card => card.dataset.id)) === String(ids)",
        arg=[hit["id"] for hit in answer["hits"]],
    )


def searched(page: "Page", act: Callable[[], object]) -> JSON:
    """The body of the search that an act brings about, after its answer."""
    with page.expect_response("**/v1/search") as answer:
        act()
    answer.value.finished()
    body: JSON = json.loads(answer.value.request.post_data or "{}")
    return body


def search(page: "Page", text: str = TEXT) -> JSON:
    page.goto("/")
    page.wait_for_selector(".welcome, .notice")
    page.fill("#text", text)
    return searched(page, lambda: page.press("#text", "Enter"))


def open_first(page: "Page") -> None:
    page.click(f"{CARDS} .open >> nth=0")
    page.wait_for_selector("#viewer[open] #why h3")


def a_picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (60, 120), (30, 60, 160)).save(file, "PNG")
    return file.getvalue()


def drop(page: "Page", data: bytes, name: str = "given.png", kind: str = "image/png") -> None:
    transfer = page.evaluate_handle(
        """([data, name, type]) => {
            const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name, { type }));
            return transfer;
        }""",
        [base64.b64encode(data).decode(), name, kind],
    )
    for event in ("dragenter", "dragover", "drop"):
        page.dispatch_event("main", event, {"dataTransfer": transfer})


def search_and_open_all(page: "Page") -> None:
    """Search, mark the first result, and open all that can be open at once: filters, shortlist, forms of export."""
    search(page)
    shown(page)
    page.click("#filters-toggle")
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    page.click("#shortlist-toggle")
    page.click("#export summary")
