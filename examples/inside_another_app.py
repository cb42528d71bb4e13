"""The search server as a part of another FastAPI app, which has routes, a lifespan and clients of its own.

STORE=… TOKEN=… uvicorn --factory --app-dir examples inside_another_app:build

Search at /pictures/ in a browser, or POST /pictures/v1/search.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import limner
from limner.server.app import create_app
from limner.server.settings import ServerSettings


def build() -> FastAPI:
    """The outer app, with limner's below /pictures."""
    if "STORE" not in os.environ:
        raise SystemExit(__doc__)
    store = limner.open_store(os.environ["STORE"])
    search = create_app(store, ServerSettings.parse({"token": os.environ.get("TOKEN")}))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        search.state.turn_away()  # a mounted app's own lifespan does not run
        store.close()

    app = FastAPI(title="Ours", lifespan=lifespan)
    app.mount("/pictures", search)

    @app.get("/")
    def home() -> dict[str, int]:
        return {"pictures": len(store)}

    return app
