"""Takes a broker through the steps of a scenario, and writes down what it answered."""

from __future__ import annotations

import re
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import Any, NamedTuple

from diskless_core.protocol.messages import KAFKA_APIS
from tests.differential.differences import Allowed, allows
from tests.differential.language import VERSIONS, Answer, Ask, Await, Raw, Scenario, Step, build, resolve
from tests.differential.transcript import Symbols, differences, part
from tests.support.wire import WireClient

PATIENCE_S = 300.0
_POLL_S = 0.01
CLOSED = "the broker closes the connection"

Address = tuple[str, int]
Line = tuple[str, Address]
"""One of the connections that a scenario uses: its name there, and the broker at its other end."""


def address_of(bootstrap: str) -> Address:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


class Entry(NamedTuple):
    """One answer, as plain data, and what was asked for it."""

    api: str
    asked: str
    answer: Any


class Player:
    """One broker in one scenario."""

    def __init__(self, bootstrap: str, name: str, played: Scenario, version: int) -> None:
        self.address = address_of(bootstrap)
        self._scenario = played
        self._version = version
        self.names: dict[str, Any] = {"$": name}
        self._symbols = Symbols(name)
        self._connections: dict[Line, WireClient] = {}
        self._pending: dict[str, deque[tuple[Ask, Line]]] = {}

    def addresses_for(self, asked: Ask) -> Sequence[Address]:
        """Which brokers a request is sent to. The answers of several are lists of groups, and are taken together."""
        return [self.address]

    def play(self) -> list[Entry]:
        try:
            return [entry for step in self._scenario.steps for entry in self._step(step)]
        finally:
            for connection in self._connections.values():
                connection.close()

    def _step(self, step: Step) -> list[Entry]:
        match step:
            case Raw():
                return [self._raw(step)]
            case Await():
                asked, line = self._pending[step.on].popleft()
                return [self._entry(asked, self._receive(line), {**asked.saves, **step.saves})]
        if step.answer is Answer.NOW:
            entry = self._entry(step, self._ask(step), step.saves)
            return [entry] if step.shown else []
        line = step.on, self.addresses_for(step)[0]
        self._connection(line).send(*self._request(step), is_answered=step.answer is Answer.LATER)
        if step.answer is Answer.LATER:
            self._pending.setdefault(step.on, deque()).append((step, line))
        return []

    def _ask(self, step: Ask) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer, *others = [self._ask_once(step, address) for address in self.addresses_for(step)]
            for other in others:
                answer.groups.extend(other.groups)
            wanted = resolve(dict(step.until), self.names)
            if answer is None or all(_has(answer, path, value) for path, value in wanted.items()):
                return answer
            assert time.monotonic() < deadline, f"{step.api} never answered {wanted}, but {answer}"
            time.sleep(_POLL_S)

    def _ask_once(self, step: Ask, address: Address) -> Any:
        line = step.on, address
        self._connection(line).send(*self._request(step))
        return self._receive(line)

    def _request(self, step: Ask) -> tuple[Any, int]:
        version = step.version
        if version is None:
            version = self._version if step.api == self._scenario.api else VERSIONS[step.api][-1]
        return build(step.api, version, resolve(dict(step.fields), self.names)), version

    def _connection(self, line: Line) -> WireClient:
        if line not in self._connections:
            self._connections[line] = WireClient(*line[1])
        return self._connections[line]

    def _receive(self, line: Line) -> Any:
        if _is_closed(self._connections[line]):
            self._connections.pop(line).close()
            return None
        return self._connections[line].receive()

    def _entry(self, step: Ask, answer: Any, saves: Mapping[str, str]) -> Entry:
        asked = f"{step.api} {_shown(resolve(dict(step.fields), self.names))}"
        if answer is None:
            return Entry(step.api, asked, CLOSED)
        self.names |= {name: part(answer, path) for name, path in saves.items()}
        return Entry(step.api, asked, self._symbols.plain(answer, only_own=step.only_own))

    def _raw(self, step: Raw) -> Entry:
        line = "first", self.address
        connection = self._connection(line)
        connection.send_bytes(struct.pack(">i", len(step.data)) + step.data)
        frame = connection.receive_frame()
        if frame is None:
            self._connections.pop(line).close()
            return Entry(step.api, step.data.hex(), CLOSED)
        [response] = [api.response for api in KAFKA_APIS.values() if api.response.__name__ == f"{step.api}Response"]
        answer = response.decode(frame[4:], version=step.version)
        return Entry(step.api, step.data.hex(), self._symbols.plain(answer))


def _is_closed(connection: WireClient) -> bool:
    """Wait for an answer, and leave it where it is."""
    try:
        return connection.socket.recv(1, socket.MSG_PEEK) == b""
    except ConnectionResetError:
        return True


def _has(answer: Any, path: str, value: Any) -> bool:
    try:
        return bool(part(answer, path) == value)
    except (AttributeError, IndexError, TypeError):
        return False


def name_of(played: Scenario, version: int) -> str:
    """A name for topics and groups of a scenario that no other one has."""
    return re.sub(r"[^a-z0-9]+", "-", f"{played.title.lower()} v{version} ")


def compare(
    kafka: Sequence[Entry],
    diskless: Sequence[Entry],
    played: Scenario,
    *,
    all_differences_show: bool = True,
    also: Sequence[Allowed] = (),
) -> None:
    """Fail, with the answers that differ, unless they agree but for what the scenario expects, and for `also`."""
    seen: set[str] = set()
    reports = []
    for number, (theirs, ours) in enumerate(zip(kafka, diskless, strict=True), 1):
        rest = []
        for found in differences(theirs.answer, ours.answer):
            allowed = allows(theirs.api, found, played.differs)
            seen |= allowed
            if not allowed and not any(one.covers(theirs.api, found) for one in also):
                rest.append(f"\n  {found}")
        if rest:
            reports.append(f"answer {number} differs{''.join(rest)}\nasked: {ours.asked}")
            if len(reports) == 1:
                reports[0] += f"\nApache Kafka: {_shown(theirs.answer)}\nDiskless: {_shown(ours.answer)}"
    assert not reports, "\n".join([played.title, *reports])
    missing = set(played.differs) - seen if all_differences_show else set()
    assert not missing, f"{played.title}: expected differences were not seen: {sorted(missing)}"


def _shown(answer: Any) -> str:
    return pformat(answer, width=110, compact=True)
