"""The HTTP interface's routes for the segments in remote storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Response, status
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, TypeAdapter

from diskless_core.admin.errors import error_answer
from diskless_core.admin.models import ErrorAnswer, RemoteSegment
from diskless_core.admin.sources import RemoteLogSource
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.tiering.segment_admin import AdoptionError

_SEGMENTS = TypeAdapter(list[RemoteSegment])
_UNAVAILABLE: dict[int | str, dict[str, Any]] = {503: {"model": ErrorAnswer}}
_UNKNOWN = _UNAVAILABLE | {404: {"model": ErrorAnswer}}


class AdoptionBody(BaseModel):
    """Segments of an empty partition, in order. Their copies lie in this cluster's remote storage."""

    model_config = ConfigDict(extra="forbid")

    topic: str
    partition: int
    log_start_offset: int
    segments: list[RemoteSegment]


def add_remote_log(app: FastAPI, source: Callable[[], RemoteLogSource]) -> None:
    """Add the routes. `source` raises CoordinatorError while there is none."""

    @app.get("/remote-log", response_model=list[RemoteSegment], responses=_UNKNOWN)
    async def list_segments(topic: str | None = None, partition: int | None = None) -> Response:
        """The segments in remote storage that are not deleted, by topic, partition and start offset."""
        segments = await source().segments(topic=topic, partition=partition)
        return Response(await asyncio.to_thread(_rendered, segments), media_type="application/json")

    @app.post("/remote-log/adopt", responses=_UNAVAILABLE | {409: {"model": ErrorAnswer}}, response_model=None)
    async def adopt(body: AdoptionBody) -> dict[str, int] | JSONResponse:
        """Let an empty partition have the records of segments that were made elsewhere. Again, it changes nothing."""
        segments = [segment.metadata() for segment in body.segments]
        try:
            await source().adopt(body.topic, body.partition, body.log_start_offset, segments)
        except AdoptionError as error:
            return error_answer(status.HTTP_409_CONFLICT, str(error))
        return {"segments": len(segments)}


def _rendered(segments: Sequence[RemoteLogSegmentMetadata]) -> bytes:
    return _SEGMENTS.dump_json([RemoteSegment.of(metadata) for metadata in segments])
