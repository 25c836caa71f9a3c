"""The HTTP interface's routes for compaction: begin a job, follow it, or see what it would do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Self

from fastapi import FastAPI, Query, status
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from diskless_core.admin.errors import answer_with, error_answer
from diskless_core.admin.models import ErrorAnswer
from diskless_core.admin.sources import PluginSource
from diskless_core.plugin.segment_compaction import SegmentCompactionError
from diskless_core.plugin_host.nouns import SEGMENT_COMPACTION
from diskless_core.tiering.compaction import CompactionRequest, Compactor
from diskless_core.tiering.report import JobReport, JobState, PlannedSegment, TopicReport
from diskless_core.tiering.topics import UnknownTopicError

_UNKNOWN: dict[int | str, dict[str, Any]] = {code: {"model": ErrorAnswer} for code in (404, 421, 503)}


class CompactionBody(BaseModel):
    """What is to be compacted: either some topics, or all. `engine` null is the configured one.

    `shards` are the Diskless coordinators whose partitions are, by index; null, all those that the broker leads.

    With `everything` the last segments are made too although they are not full, up to the high watermark.
    """

    model_config = ConfigDict(extra="forbid")

    topics: list[str] = []
    all: bool = False
    shards: list[int] | None = None
    engine: str | None = None
    everything: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.topics) == self.all:
            raise PydanticCustomError("topics_or_all", "either topics are named, or all is true")
        return self

    def request(self) -> CompactionRequest:
        """As the compactor takes it."""
        return CompactionRequest(
            topics=None if self.all else self.topics,
            shards=self.shards,
            engine=self.engine,
            everything=self.everything,
        )


class CompactionAnswer(BaseModel):
    """A compaction as it is now; see `JobReport`."""

    id: str
    node_id: int
    shards: list[int]
    moved: list[int]
    state: JobState
    engine: str
    begun_at_ms: int
    ended_at_ms: int | None
    bytes_expected: int
    bytes_planned: int
    bytes_copied: int
    segments: int
    skipped: int
    topics: dict[str, TopicReport]
    failures: list[str]

    @classmethod
    def of(cls, report: JobReport) -> Self:
        """What a report says."""
        return cls(**{name: getattr(report, name) for name in cls.model_fields})


def add_compaction(app: FastAPI, compactor: Callable[[], Compactor], plugins: PluginSource) -> None:
    """The routes. `compactor` raises CoordinatorError while there is none."""
    app.add_exception_handler(UnknownTopicError, answer_with(status.HTTP_404_NOT_FOUND))
    app.add_exception_handler(SegmentCompactionError, answer_with(status.HTTP_503_SERVICE_UNAVAILABLE))

    @app.post("/compaction", responses=_UNKNOWN)
    async def begin(body: CompactionBody) -> CompactionAnswer:
        """Begin to compact partitions whose coordinators this broker leads.

        `shards` of the job, once it runs, are those. The others are for the brokers that lead them.
        """
        request = body.request()
        await compactor().learn_topics(request)
        return CompactionAnswer.of(compactor().begin(request))

    @app.get("/compaction/plan", responses=_UNKNOWN)
    async def plan(
        topic: Annotated[list[str] | None, Query()] = None,
        shard: Annotated[list[int] | None, Query()] = None,
        engine: str | None = None,
        everything: bool = False,
    ) -> list[PlannedSegment]:
        """The segments that a compaction would make now, of some topics or all. They are the same for any engine.

        Of the coordinators that are named, all of which this broker has to lead (421), or of those that it leads.
        """
        if engine is not None:
            await asyncio.to_thread(plugins.get, SEGMENT_COMPACTION.name, engine)
        request = CompactionRequest(topics=topic, shards=shard, engine=engine, everything=everything)
        await compactor().learn_topics(request)
        return [segment async for segment in compactor().plan(request)]

    @app.get("/compaction/{job_id}", response_model=CompactionAnswer, responses=_UNKNOWN)
    async def follow(job_id: str) -> CompactionAnswer | JSONResponse:
        """How far a compaction is. A broker forgets old ones, and all when it is started anew."""
        report = compactor().report(job_id)
        if report is None:
            return error_answer(status.HTTP_404_NOT_FOUND, f"there is no compaction {job_id}")
        return CompactionAnswer.of(report)
