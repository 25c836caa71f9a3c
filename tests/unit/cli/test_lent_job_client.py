"""How a driver asks its broker when answers get lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from diskless_core.admin.driver_models import CopyAnswer, CopyBody, FinishAnswer
from diskless_core.cli.admin_client import NoAnswerError, RefusedError
from diskless_core.cli.lent_job_client import LentJobClient


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


async def test_a_step_is_asked_for_until_there_is_a_whole_answer(brokers):
    brokers.append(LossyBroker({"taken": True}, lost=3))
    client = LentJobClient(brokers[0].url)
    answer = await client.step("job", "POST", "/copies/x/finish", FinishAnswer, CopyBody(token="a"))
    client.close()
    assert answer.taken
    assert brokers[0].bodies == [{"token": "a"}] * 4


async def test_a_refusal_is_final(brokers):
    brokers.append(LossyBroker({"error_code": 409, "message": "the compaction has ended"}, lost=0, status=409))
    client = LentJobClient(brokers[0].url)
    with pytest.raises(RefusedError) as refused:
        await client.step("job", "POST", "/copies/x/finish", CopyAnswer, CopyBody(token="a"))
    client.close()
    assert refused.value.reason == "the compaction has ended"
    assert len(brokers[0].bodies) == 1


async def test_patience_with_a_silent_broker_has_an_end(brokers):
    brokers.append(LossyBroker({}, lost=1000))
    client = LentJobClient(brokers[0].url)
    client.patience_s = 0.5
    with pytest.raises(NoAnswerError):
        await client.progress("job", 7)
    client.close()
    assert len(brokers[0].bodies) > 1
    assert brokers[0].bodies[0] == {"bytes_copied": 7}
