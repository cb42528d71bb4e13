"""Embeddings for other programs: `/v1/embeddings` as servers of OpenAI's form have it, and immich's `/predict`.

So a run takes the place of their model: vector databases and agents ask for embeddings, and immich sends the pictures
that it indexes and the texts of its searches; any model's name is answered by this one.
"""

import base64
import json
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, File, Form, Request, UploadFile
from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import JSONResponse, PlainTextResponse

from limner.search.engine import Engine
from limner.search.store_info import system_of
from limner.server.audit_routes import note
from limner.server.batching import Worker, unless_disconnected
from limner.server.bodies import Picture, RequestModel, Sentence
from limner.server.pictures import Decoding, check_pixels
from limner.server.problems import RefusedError, declared
from limner.server.routes import Rules
from limner.server.settings import ServerSettings
from limner.types import Pixels
from limner.wire import ResponseModel

_MOST = 64
"""Largest number of inputs of a request."""


def _without_head(value: Any) -> Any:
    # data:image/jpeg;base64,…
    return value.partition(",")[2] if isinstance(value, str) and value.startswith("data:") else value


class Part(RequestModel):
    """One input: a text or a picture."""

    # a null counts as not given
    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": [one], "properties": {one: {"type": "string"}}} for one in ("text", "image")
            ]
        }
    )

    text: Sentence | None = None
    """A text."""

    image: Annotated[Picture, BeforeValidator(_without_head)] | None = None
    """A picture file in base64, also as a data URL; no address is fetched."""

    @model_validator(mode="after")
    def _is_one(self) -> "Part":
        if (self.text is None) == (self.image is None):
            raise PydanticCustomError("part", "expected a text or an image")
        return self

    @property
    def content(self) -> str | bytes:
        """The text, or the bytes of the picture."""
        return self.image or self.text or ""


class EmbeddingsBody(RequestModel):
    """A request for embeddings, in the form of OpenAI's API; pictures as `{"image": …}`."""

    # programs send fields of their own, such as `user`
    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [{"input": ["a red coat"]}]})

    input: Sentence | Annotated[list[Sentence | Part], Field(min_length=1, max_length=_MOST)]
    """A text, or a list of texts and of `{"text": …}` and `{"image": …}`."""

    model: str = ""
    """Any name: the server has one model, and says which."""

    encoding_format: Literal["float", "base64"] = "float"
    """Lists of numbers, or float32 in little-endian order as base64."""

    dimensions: int | None = None
    """The width that is wanted: that of the model, or null."""


class Embedding(ResponseModel):
    """One embedding, of length 1."""

    object: Literal["embedding"] = "embedding"
    """Always `embedding`."""
    index: int
    """Place of its input, from 0."""
    embedding: list[float] | str
    """Its numbers."""


class Usage(ResponseModel):
    """A part of the form; nothing is counted."""

    prompt_tokens: int = 0
    """Always 0."""
    total_tokens: int = 0
    """Always 0."""


class Embeddings(ResponseModel):
    """The embeddings of a request's inputs, in their order."""

    object: Literal["list"] = "list"
    """Always `list`."""
    data: tuple[Embedding, ...]
    """An embedding for each input."""
    model: str
    """The system and the beginning of the fingerprint of the model that answered."""
    usage: Usage = Usage()
    """A part of the form."""


def embedding_routes(
    engine: Engine, worker: Worker, decoding: Decoding, settings: ServerSettings
) -> APIRouter:
    """Make the routes of embeddings, which use the model in the thread of `worker`."""
    routes = APIRouter(tags=["embeddings"])
    refusals = declared(400, 401, 403, 408, 409, 413, 421, 422, 429, 500, 503)
    encoder = engine.encoder

    def prepared(content: bytes) -> Pixels:
        check_pixels(content, settings.max_pixels)
        return encoder.prepare_image(content)

    async def embed(request: Request, inputs: list[str | bytes]) -> np.ndarray:
        """Embed texts and pictures, in their order."""
        pixels = [await decoding.run(prepared, one) if isinstance(one, bytes) else None for one in inputs]

        def encode() -> np.ndarray:
            rows = np.empty((len(inputs), encoder.dim), np.float32)
            for row, one, picture in zip(rows, inputs, pixels, strict=True):
                if isinstance(one, str):
                    encoder.check_query(one)
                    row[:] = encoder.encode_queries([one])[0]
                else:
                    # one by one: in bf16 an embedding depends on how many are encoded together
                    assert picture is not None
                    row[:] = encoder.encode_pixels(picture[None])[0]
            return rows

        return await unless_disconnected(request, worker.call(encode), settings.query_seconds)

    @Rules(right="search", audit="embeddings", large=True)
    @routes.post("/v1/embeddings", responses=refusals)
    async def embeddings(body: EmbeddingsBody, request: Request) -> Embeddings:
        """Embed texts and pictures."""
        given = [body.input] if isinstance(body.input, str) else body.input
        inputs = [one if isinstance(one, str) else one.content for one in given]
        note(request.scope, inputs=len(inputs), kind=_kinds(inputs))
        if body.dimensions not in (None, encoder.dim):
            raise RefusedError(409, f"dimensions: the model has {encoder.dim}, got {body.dimensions}")
        rows = await embed(request, inputs)
        numbers = [
            base64.b64encode(row.astype("<f4").tobytes()).decode()
            if body.encoding_format == "base64"
            else row.tolist()
            for row in rows
        ]
        data = tuple(Embedding(index=index, embedding=one) for index, one in enumerate(numbers))
        return Embeddings(data=data, model=f"{system_of(encoder) or 'model'}-{encoder.fingerprint[:12]}")

    @Rules(right="search", audit="predict", large=True)
    @routes.post("/predict", include_in_schema=False)
    async def predict(
        request: Request,
        entries: Annotated[str, Form(max_length=4000, description="The task, as immich writes it.")],
        image: Annotated[UploadFile | None, File(description="A picture file.")] = None,
        text: Annotated[str | None, Form(max_length=2000, description="A text.")] = None,
    ) -> JSONResponse:
        """Embed a picture or a text as immich's machine learning service does, for its task `clip`."""
        _expect_clip(entries)
        if (image is None) == (text is None):
            raise RefusedError(422, "expected a text or an image")
        one = text if image is None else await image.read()
        assert one is not None
        note(request.scope, inputs=1, kind=_kinds([one]))
        row = (await embed(request, [one]))[0]
        # a string within the JSON, as immich reads it
        return JSONResponse({"clip": json.dumps(row.tolist())})

    @Rules(is_open=True, cost=0.0)
    @routes.get("/ping", include_in_schema=False)
    async def ping() -> PlainTextResponse:
        """Say that the server is there, as immich asks."""
        return PlainTextResponse("pong")

    return routes


def _kinds(inputs: list[str | bytes]) -> str:
    return "+".join(sorted({"text" if isinstance(one, str) else "image" for one in inputs}, reverse=True))


def _expect_clip(entries: str) -> None:
    try:
        tasks: Any = json.loads(entries)
    except (ValueError, RecursionError):
        raise RefusedError(422, "entries: expected JSON") from None
    if not isinstance(tasks, dict) or list(tasks) != ["clip"]:
        raise RefusedError(
            422, "entries: this server has immich's task 'clip' alone; faces and text need another"
        )
