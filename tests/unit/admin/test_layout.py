"""Which topics a request for layouts chooses."""

from __future__ import annotations

import httpx
import pytest

from diskless_core.admin.http import AdminServer
from tests.unit.admin.test_http import ANY_PORT, sources

TOPICS = ["orders", "orders-2024.q1", "payments", "a" * 28 + "b"]


class StubLayouts:
    """Remembers which topics were wanted, and answers with nothing."""

    async def pin(self, names, wants, from_offsets):
        self.named, self.wanted = list(names), [topic for topic in TOPICS if wants(topic)]
        return []

    async def encoded(self, pinned):
        yield b""


@pytest.fixture
def layouts():
    return StubLayouts()


@pytest.fixture
async def client(layouts):
    server = AdminServer(ANY_PORT, sources(layouts=lambda: layouts))
    server.bind()
    server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        yield http
    await server.stop()


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, TOPICS),
        ({"topic": "orders"}, []),
        ({"pattern": "order"}, []),
        ({"pattern": "orders.*"}, ["orders", "orders-2024.q1"]),
        ({"pattern": r"orders\-2024\.q1|pay.*"}, ["orders-2024.q1", "payments"]),
        ({"pattern": "(a+)+$"}, []),
        ({"pattern": ""}, []),
    ],
)
async def test_a_pattern_chooses_topics_by_their_whole_names_however_it_is_written(client, layouts, query, wanted):
    answer = await client.get("/topics/layout", params=query)

    assert (answer.status_code, layouts.wanted) == (200, wanted)


@pytest.mark.parametrize("pattern", ["(", "a)(b", "(?=a)a", r"(a)\1", "((a{1000}){1000}){1000}"])
async def test_a_pattern_that_cannot_be_used_is_refused(client, layouts, pattern):
    answer = await client.post("/topics/layout", json={"pattern": pattern})

    assert (answer.status_code, not hasattr(layouts, "wanted")) == (422, True)
    assert answer.json()["message"].startswith(f"pattern: {pattern!r} is no valid regular expression: ")
