"""The HTTP interface's route for where records lie, for whoever reads topics straight from the object store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response, status
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from diskless_core.admin.errors import error_answer
from diskless_core.admin.models import ErrorAnswer, KafkaUuid
from diskless_core.diskless.commands import PartitionKey
from diskless_core.groups.consumer import topic_regex
from diskless_core.groups.consumer.topic_regex import InvalidRegexError
from diskless_core.layout.codec import CONTENT_TYPE
from diskless_core.tiering.layouts import Layouts

_ERRORS: dict[int | str, dict[str, Any]] = {code: {"model": ErrorAnswer} for code in (404, 422, 503)}
_ANSWERS = _ERRORS | {200: {"content": {CONTENT_TYPE: {}}, "description": "Lines as of `layout.codec`."}}


class LayoutBody(BaseModel):
    """Which topics, and from which offset on: by topic id and partition, where it is not the first."""

    model_config = ConfigDict(extra="forbid")

    topics: list[str] = []
    pattern: str | None = None
    from_offsets: dict[KafkaUuid, dict[int, int]] = Field(default_factory=dict, alias="from")


def add_layout(app: FastAPI, layouts: Callable[[], Layouts]) -> None:
    """Add the routes. `layouts` raises CoordinatorError while there are none."""

    @app.get("/topics/layout", response_class=Response, responses=_ANSWERS)
    async def layout(topic: Annotated[list[str] | None, Query()] = None, pattern: str | None = None) -> Response:
        """Where the records of topics lie, of all topics unless some are named, or those that match a pattern wholly.

        Everything that was committed before is in. The last line tells that the answer is whole.
        """
        return await answer(LayoutBody(topics=topic or [], pattern=pattern))

    @app.post("/topics/layout", response_class=Response, responses=_ANSWERS)
    async def layout_from(body: LayoutBody) -> Response:
        """The same; of the partitions in `from`, only where the records from that offset on lie."""
        return await answer(body)

    async def answer(body: LayoutBody) -> Response:
        try:
            matches = topic_regex.matcher(body.pattern) if body.pattern is not None else None
        except InvalidRegexError as error:
            return error_answer(status.HTTP_422_UNPROCESSABLE_CONTENT, f"pattern: {error}")
        everything = matches is None and not body.topics
        source = layouts()
        pinned = await source.pin(
            body.topics,
            lambda name: everything or (matches is not None and matches(name)),
            {
                PartitionKey(topic_id.bytes, partition): offset
                for topic_id, partitions in body.from_offsets.items()
                for partition, offset in partitions.items()
            },
        )
        return StreamingResponse(source.encoded(pinned), media_type=CONTENT_TYPE)
