"""How a driver asks its broker when answers get lost."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from diskless_core.admin.driver_models import FinishAnswer, FinishStep, SegmentsStep
from diskless_core.cli.admin_client import NoAnswerError, RefusedError
from diskless_core.cli.external_job_client import ExternalJobClient


class LossyBroker:
    """Answers a request only when so many have been lost on their way, half of them within the answer."""

    def __init__(self, answer: Any, lost: int, status: int = 200) -> None:
        self.bodies: list[Any] = []
        broker = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                broker.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                if len(broker.bodies) > lost:
                    body = json.dumps(answer).encode()
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                elif len(broker.bodies) % 2:
                    self.send_response(200)
                    self.send_header("Content-Length", "1000")
                    self.end_headers()
                    self.wfile.write(b'{"taken": ')

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def end(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def brokers() -> Iterator[list[LossyBroker]]:
    made: list[LossyBroker] = []
    yield made
    for broker in made:
        broker.end()


STEP = FinishStep(segment_id=uuid.UUID(int=1), custom_metadata=None)


async def test_a_batch_of_steps_is_asked_for_until_there_is_a_whole_answer(brokers):
    answers = [{"step": "finish", "taken": True}, {"step": "refused", "error_code": 503, "message": "no"}]
    brokers.append(LossyBroker({"answers": answers}, lost=3))
    client = ExternalJobClient(brokers[0].url)
    steps = client.steps("job")
    other = STEP.model_copy(update={"segment_id": uuid.UUID(int=2)})
    taken, refused = await asyncio.gather(
        steps.ask(STEP, FinishAnswer), steps.ask(other, FinishAnswer), return_exceptions=True
    )
    client.close()
    assert taken.taken
    assert (type(refused), refused.reason) == (RefusedError, "no")
    assert brokers[0].bodies == [{"steps": [STEP.model_dump(mode="json"), other.model_dump(mode="json")]}] * 4


async def test_a_refusal_is_final(brokers):
    brokers.append(LossyBroker({"error_code": 409, "message": "the compaction has ended"}, lost=0, status=409))
    client = ExternalJobClient(brokers[0].url)
    with pytest.raises(RefusedError) as refused:
        await client.steps("job").ask(STEP, FinishAnswer)
    client.close()
    assert refused.value.reason == "the compaction has ended"
    assert len(brokers[0].bodies) == 1


async def test_a_client_that_is_closed_asks_no_more(brokers):
    brokers.append(LossyBroker({}, lost=1000))
    client = ExternalJobClient(brokers[0].url)
    asked = asyncio.create_task(client.steps("job").ask(SegmentsStep(partition=0, number=0), FinishAnswer))
    while len(brokers[0].bodies) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    client.close()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_patience_with_a_silent_broker_has_an_end(brokers):
    brokers.append(LossyBroker({}, lost=1000))
    client = ExternalJobClient(brokers[0].url)
    client.patience_s = 0.5
    with pytest.raises(NoAnswerError):
        await client.progress("job", 7)
    client.close()
    assert len(brokers[0].bodies) > 1
    assert brokers[0].bodies[0] == {"bytes_copied": 7}
