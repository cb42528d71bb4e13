"""The routes of alerts: saved searches of which a server that follows folders tells."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi import Path as PathPart
from pydantic import ConfigDict, Field

from limner.alert_reports import AlertList, SavedAlert
from limner.conditions import Condition
from limner.search.alerts import save_alert
from limner.search.engine import Engine
from limner.server.access import rights_of
from limner.server.audit_routes import begun, note
from limner.server.batching import Worker
from limner.server.bodies import RequestModel, Sentence, Where, conditions_of
from limner.server.following import Found, held_by
from limner.server.problems import RefusedError, declared
from limner.server.routes import Rules
from limner.server.settings import ServerSettings
from limner.server.turns import Turns
from limner.store.alerts import Alert, AlertName, alerts_of, change_alerts, saved_alert, without


class NewAlert(RequestModel):
    """An alert to save. A web hook can be named by `limner watch` alone: a server asks nobody whom clients name."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "red cars", "text": "a red car", "at_least": 0.6}]}
    )

    name: AlertName
    """Its name: up to 60 letters, digits, blanks and signs of `_.-`."""

    text: Sentence
    """The description of what to look for."""

    where: list[Where] = Field(default=[], max_length=20)
    """Conditions that a picture must meet, too."""

    at_least: Annotated[float, Field(ge=0, le=1)]
    """The least probability of a picture that is told; of a model without a calibration its cosine."""


def alert_routes(engine: Engine, worker: Worker, found: Found, settings: ServerSettings) -> APIRouter:
    """Make the routes of alerts."""
    routes = APIRouter(tags=["alerts"])
    always = (401, 403, 421, 422, 429, 500, 503)
    turns = Turns()

    def expect_changes() -> None:
        if not (settings.watch and settings.alerts):
            raise RefusedError(
                403,
                "this server takes no alerts; start it with --watch and --allow-changes, or by `limner open`",
            )

    def is_told(condition: str) -> bool:
        return settings.show_paths or Condition.parse(condition).name.strip() != "path"

    @Rules(right="search", audit="alerts")
    @routes.get("/v1/alerts", responses=declared(*always))
    def alerts(request: Request) -> AlertList:
        """List the alerts, with the last pictures that each has found."""
        own = list(alerts_of(engine.files).values())
        last = {one.name: found.of(one.name) for one in own}
        ids = [hit.id for _, hits in last.values() for hit in hits]
        held = held_by(engine.files, ids) if ids else set()
        listed = []
        for one in own:
            count, hits = last[one.name]
            told = saved_alert(one, count, tuple(hit for hit in hits if hit.id in held))
            listed.append(told.model_copy(update={"where": tuple(filter(is_told, one.where))}))
        note(request.scope, found=sorted(held))
        return AlertList(
            alerts=tuple(listed),
            may_change=settings.watch and settings.alerts and "add" in rights_of(request.scope),
        )

    @Rules(right="add", audit="alert", changes=True)
    @routes.post("/v1/alerts", status_code=201, responses=declared(400, 408, 409, 413, *always))
    async def save(body: NewAlert, request: Request) -> SavedAlert:
        """Save an alert, which tells of pictures that come from now on."""
        expect_changes()
        note(request.scope, text=body.text, where=body.where)
        # how many fit is an answer to a question like any other
        if "search" not in rights_of(request.scope):
            raise RefusedError(403, "who saves an alert needs the right to search, too")
        conditions_of(body.where, paths=settings.show_paths)
        alert = Alert.parse(body.model_dump())
        await begun(request.scope)

        def saved() -> tuple[Alert, int]:
            return save_alert(engine, alert, anew=False)

        kept, fits = await turns.take(lambda: asyncio.wrap_future(worker.change(saved)))
        return saved_alert(kept).model_copy(update={"fits": fits})

    @Rules(right="add", audit="alert-delete", changes=True)
    @routes.delete("/v1/alerts/{name}", status_code=204, responses=declared(404, 408, 413, *always))
    async def delete(
        name: Annotated[AlertName, PathPart(description="The alert's name.")], request: Request
    ) -> None:
        """Take an alert away."""
        expect_changes()
        if name not in alerts_of(engine.files):
            raise RefusedError(404, "the store has no alert of this name")
        await begun(request.scope)
        await turns.take(
            lambda: asyncio.wrap_future(
                worker.change(change_alerts, engine.files, lambda alerts: without(alerts, name))
            )
        )
        found.forget(name)

    return routes
