"""Compaction over HTTP, and the command that uses it."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from typer.testing import CliRunner

from diskless_core.admin.http import AdminServer
from diskless_core.cli import cluster_compaction
from diskless_core.cli.main import main
from diskless_core.coordinator.errors import CoordinatorLoadingError
from diskless_core.plugin.errors import PluginError, PluginNotFoundError
from diskless_core.tiering.compaction import CompactionRequest
from diskless_core.tiering.report import JobReport, JobState, PlannedSegment
from diskless_core.tiering.topics import UnknownTopicError
from tests.unit.admin.test_http import ANY_PORT, sources

SEGMENT = PlannedSegment(topic="t", partition=1, start_offset=2, end_offset=5, size_bytes=70, ranges=3)


class StubCompactor:
    """A job that is at its end when it is asked for the second time."""

    def __init__(self) -> None:
        self.requests: list[CompactionRequest] = []
        self.failures: list[str] = []
        self.segments, self.is_full = 2, True
        self.refusal: PluginError | None = None
        self.plan_error: Exception | None = None
        self.job = JobReport(id="job", node_id=1, shards=[0], engine="inline", begun_at_ms=1000)

    async def learn_topics(self, request: CompactionRequest) -> None:
        """All are known."""

    def begin(self, request: CompactionRequest) -> JobReport:
        self._check(request)
        topic = self.job.of("t")
        topic.partitions, topic.segments, topic.size_bytes = 4, self.segments, self.segments * 35
        return self.job

    def report(self, job_id: str) -> JobReport | None:
        if job_id != "job":
            return None
        self.job.bytes_copied, self.job.ended_at_ms, self.job.skipped = self.segments * 35, 3000, 1
        self.job.state = JobState.FAILED if self.failures else JobState.FINISHED
        self.job.failures = self.failures
        return self.job

    async def plan(self, request: CompactionRequest):
        self._check(request)
        if self.plan_error is not None:
            raise self.plan_error
        if self.is_full or request.everything:
            yield SEGMENT

    def _check(self, request: CompactionRequest) -> None:
        self.requests.append(request)
        if request.topics and "missing" in request.topics:
            raise UnknownTopicError("there is no topic missing")
        if self.refusal is not None:
            raise self.refusal
        if request.engine == "missing":
            raise PluginNotFoundError("there is no segment_compaction 'missing'")


@pytest.fixture
def compactor() -> StubCompactor:
    return StubCompactor()


class StubPlugins:
    """Knows one engine."""

    def get(self, noun, name):
        if (noun, name) != ("segment_compaction", "inline"):
            raise PluginNotFoundError(f"there is no {noun} {name!r}")


@pytest.fixture
async def server(compactor):
    server = AdminServer(ANY_PORT, sources(compactor=lambda: compactor, plugins=StubPlugins()))
    server.bind()
    server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(server):
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        yield http


async def test_a_job_is_begun_and_followed(client, compactor):
    answer = await client.post("/compaction", json={"topics": ["t"], "everything": True})
    assert (answer.status_code, answer.json()["id"], answer.json()["state"]) == (200, "job", "waiting")
    assert compactor.requests == [CompactionRequest(topics=["t"], everything=True)]
    answer = await client.get("/compaction/job")
    assert answer.json() == {
        "id": "job",
        "node_id": 1,
        "shards": [0],
        "moved": [],
        "state": "finished",
        "engine": "inline",
        "begun_at_ms": 1000,
        "ended_at_ms": 3000,
        "bytes_expected": 0,
        "bytes_planned": 0,
        "bytes_copied": 70,
        "segments": 2,
        "skipped": 1,
        "topics": {"t": {"partitions": 4, "segments": 2, "size_bytes": 70, "segments_lost": 0}},
        "failures": [],
    }


async def test_all_topics_are_asked_for_by_name_of_none(client, compactor):
    await client.post("/compaction", json={"all": True, "engine": "other"})
    assert compactor.requests == [CompactionRequest(topics=None, engine="other")]


@pytest.mark.parametrize(
    ("body", "message"),
    [({"topics": ["missing"]}, "no topic missing"), ({"all": True, "engine": "missing"}, "segment_compaction")],
)
async def test_what_is_not_there_is_not_found(client, body, message):
    answer = await client.post("/compaction", json=body)
    assert (answer.status_code, message in answer.json()["message"]) == (404, True)


async def test_an_unknown_job_is_not_found(client):
    assert (await client.get("/compaction/other")).status_code == 404


async def test_a_plan_is_a_list_of_segments(client, compactor):
    answer = await client.get("/compaction/plan?topic=t&topic=u&everything=true")
    assert answer.json() == [
        {"topic": "t", "partition": 1, "start_offset": 2, "end_offset": 5, "size_bytes": 70, "ranges": 3}
    ]
    assert compactor.requests == [CompactionRequest(topics=["t", "u"], everything=True)]


async def test_a_plan_may_be_of_some_coordinators_only(client, compactor):
    await client.get("/compaction/plan?shard=0&shard=2")
    assert compactor.requests == [CompactionRequest(shards=[0, 2])]


async def test_a_plan_for_an_engine_that_is_not_there_is_not_found(client):
    assert (await client.get("/compaction/plan?engine=inline")).status_code == 200
    answer = await client.get("/compaction/plan?engine=missing")
    assert (answer.status_code, answer.json()["message"]) == (404, "there is no segment_compaction 'missing'")


async def test_a_compaction_that_the_broker_refuses_is_a_conflict(client, compactor):
    compactor.refusal = PluginError("set remote_storage to another place")
    answer = await client.post("/compaction", json={"all": True})
    assert (answer.status_code, answer.json()["message"]) == (409, "set remote_storage to another place")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"topics": "orders"}', "topics: Input should be a valid list"),
        (b'{"topics": ["a", 1]}', "topics.1: Input should be a valid string"),
        (b'{"every": true}', "every: Extra inputs are not permitted"),
        (b'["orders"]', "all of it: Input should be a valid dictionary or object to extract fields from"),
        (b"{", "it is no JSON"),
        (b"{}", "all of it: either topics are named, or all is true"),
        (b'{"topics": ["a"], "all": true}', "all of it: either topics are named, or all is true"),
    ],
)
async def test_what_is_wrong_with_a_body_is_told(client, body, message):
    answer = await client.post("/compaction", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["message"]) == (422, f"the body is not what it has to be: {message}")


async def run(server, *arguments):
    return await asyncio.to_thread(CliRunner().invoke, main, ["compact", "--url", server.url, *arguments])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(cluster_compaction, "POLL_S", 0.01)


async def test_the_command_waits_for_the_end_and_shows_what_was_made(server, compactor):
    result = await run(server, "--topic", "t", "--everything")
    assert result.exit_code == 0, result.output
    assert "2 segments of 70 bytes in 2.0 s, engine inline" in result.output
    assert compactor.requests == [CompactionRequest(topics=["t"], shards=[0], everything=True)]


async def test_the_command_fails_when_the_job_does(server, compactor):
    compactor.failures = ["t-1 at offset 2: the disk is full"]
    result = await run(server, "--all")
    assert result.exit_code == 1
    assert "the disk is full" in result.output


async def test_the_command_can_answer_in_json_and_show_a_plan(server):
    assert json.loads((await run(server, "--all", "--json")).stdout)["segments"] == 2
    [segment] = json.loads((await run(server, "--topic", "t", "--plan", "--json")).stdout)
    assert segment["end_offset"] == 5
    assert "1 segment of 70 bytes" in (await run(server, "--all", "--plan")).output


async def test_a_plan_says_ranges_in_its_table_as_in_its_json(server):
    assert "ranges" in (await run(server, "--topic", "t", "--plan")).stdout
    assert json.loads((await run(server, "--topic", "t", "--plan", "--json")).stdout)[0]["ranges"] == 3


@pytest.mark.parametrize("way", [(), ("--plan",)])
async def test_the_command_says_what_waits_where_nothing_is_full(server, compactor, way):
    compactor.segments, compactor.is_full = 0, False
    result = await run(server, "--topic", "t", *way)
    assert result.exit_code == 0, result.output
    assert "nothing is full yet (70 bytes wait in WAL objects); --everything makes the rest" in result.output
    assert compactor.requests[-1] == CompactionRequest(topics=["t"], shards=[0], everything=True)
    for others in (("--everything",), ("--json",)):
        assert "nothing is full" not in (await run(server, "--topic", "t", *way, *others)).output


async def test_a_job_that_is_done_succeeds_though_nobody_says_what_waits(server, compactor):
    compactor.segments, compactor.plan_error = 0, CoordinatorLoadingError("the broker is stopping")
    result = await run(server, "--topic", "t")
    assert (result.exit_code, "nothing is full" in result.output) == (0, False), result.output


async def test_a_plan_with_an_engine_that_is_not_there_fails(server):
    result = await run(server, "--all", "--plan", "--engine", "missing")
    assert result.exit_code == 1
    assert "there is no segment_compaction 'missing'" in result.output


@pytest.mark.parametrize("arguments", [[], ["--all", "--topic", "t"]])
async def test_the_command_wants_topics_or_all(server, arguments):
    assert (await run(server, *arguments)).exit_code == 2


async def test_an_engine_that_has_no_master_is_not_given_one(server, compactor):
    result = await run(server, "--all", "--engine", "inline", "--master", "local[2]")
    assert result.exit_code == 1
    assert "the engine inline has no --master" in result.output
    assert not compactor.requests
