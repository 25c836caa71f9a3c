"""Where records lie, as a running broker tells it, or the snapshots that brokers left in the bucket."""

from __future__ import annotations

import json
import logging
import re
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.client import HTTPException
from typing import Self

from tenacity import RetryCallState, Retrying, nap, retry_if_exception_type

from diskless_core.clock import Clock, SystemClock
from diskless_core.layout.codec import LayoutFormatError, decode_layouts
from diskless_core.layout.partition import PartitionLayout
from diskless_core.plugin.retrying import Backoff
from diskless_core.snapshot.format import SnapshotError
from diskless_core.snapshot.layouts import read_layouts
from diskless_spark.source.connection import Connection
from diskless_spark.source.offsets import NOWHERE, Position
from diskless_spark.source.options import SnapshotKind, SourceOptionError, Subscription
from diskless_spark.source.planning import place_of
from diskless_spark.source.stores import Stores

PLAN_PATIENCE_S = 5.0
"""How long a batch query asks a broker that does not answer: somebody may be waiting for it."""

PATIENCE_S = 60.0
"""The same for streams, and for tasks: a broker that is started again is back by then."""

_BACKOFF = Backoff(first_ms=200, max_ms=10_000, jitter=0.2)
_TIMEOUT_S = 60.0
_CONNECT_S = 5.0
_BUSY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_TOPICS_IN_A_PATTERN = 50
"""So that requests stay short."""

_log = logging.getLogger(__name__)


class LayoutError(Exception):
    """It cannot be found out where records lie; the message says why."""


class AbsentError(LayoutError):
    """A topic or a partition does not exist."""


class _UnansweredError(LayoutError):
    """There is no answer now, but there may be one later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """Asks for the layouts of partitions, each time anew.

    Attributes:
        patience_s: for how long a broker is asked again that gives no answer.
        is_stream: whether it is for a stream, which cannot do without a broker.
    """

    connection: Connection
    kind: SnapshotKind
    patience_s: float = PATIENCE_S
    is_stream: bool = False
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = nap.sleep

    def patient(self) -> Self:
        """The same, for who can wait for a broker to come back."""
        return replace(self, patience_s=PATIENCE_S)

    def of(self, subscription: Subscription, position: Position = NOWHERE) -> list[PartitionLayout]:
        """The layouts of all partitions of a subscription.

        Args:
            position: what lies before it may be left out, so that the answer is no longer than what is to be read.

        Raises:
            AbsentError: a topic or a partition does not exist.
            LayoutError: nobody can tell.
            SourceOptionError: the broker takes the pattern for none.
        """
        if self.kind is SnapshotKind.BUCKET:
            found = self._from_bucket(subscription)
        else:
            found = self._from_broker(subscription, position)
        wanted = [layout for layout in found if subscription.wants(place_of(layout))]
        if absent := absent_of(subscription, wanted):
            raise AbsentError(f"there is no {', '.join(absent)}")
        return sorted(wanted, key=place_of)

    def _from_broker(self, subscription: Subscription, position: Position) -> Sequence[PartitionLayout]:
        names = subscription.names()
        for url in self.connection.urls:
            if not url.startswith(("http://", "https://")):
                raise LayoutError(f"diskless.url: {url!r} is no address of a broker, as http://host:9644 is")
        wanted = {"topics": names} if names else {"pattern": subscription.pattern}
        body = {**wanted, "from": {topic["id"]: topic["offsets"] for topic in position.noted().values()}}
        begun_s = self.clock.monotonic()
        asking = Retrying(
            retry=retry_if_exception_type(_UnansweredError),
            stop=lambda state: self.clock.monotonic() - begun_s + state.upcoming_sleep > self.patience_s,
            wait=_BACKOFF.wait(self.clock),
            sleep=self.sleep,
            before_sleep=_report,
            reraise=True,
        )
        found: Sequence[PartitionLayout] = asking(self._ask_any, json.dumps(body).encode(), subscription)
        return found

    def _ask_any(self, body: bytes, subscription: Subscription) -> Sequence[PartitionLayout]:
        """Ask one broker after the other, until one has an answer."""
        problems: list[_UnansweredError] = []
        for url in self.connection.urls:
            try:
                if len(self.connection.urls) > 1:
                    self._require_listener(url)
                return self._ask(url, body, subscription)
            except _UnansweredError as error:
                problems.append(error)
        if len(problems) == 1:
            raise problems[0]
        raise _UnansweredError("; ".join(map(str, problems))) from problems[-1]

    def _require_listener(self, url: str) -> None:
        """That the broker's machine is there, which takes long to find out of one that is not: another one may be."""
        parts = urllib.parse.urlsplit(url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((parts.hostname or "", port), _CONNECT_S).close()
        except OSError as error:
            raise self._silent(url, error) from error

    def _silent(self, url: str, error: OSError) -> _UnansweredError:
        other = "; diskless.snapshot=bucket reads what the last snapshots know, without a broker"
        return _UnansweredError(
            f"the broker at {url} does not answer: {error}; diskless.url says where it is"
            f"{'' if self.is_stream else other}"
        )

    def _ask(self, url: str, body: bytes, subscription: Subscription) -> Sequence[PartitionLayout]:
        request = urllib.request.Request(  # noqa: S310 - http, as checked
            f"{url}/topics/layout", body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - http, as checked
                return list(decode_layouts(answer))
        except urllib.error.HTTPError as error:
            with error:
                words = _words(error.read())
            if error.code == HTTPStatus.NOT_FOUND and subscription.names():
                raise AbsentError(f"the broker at {url} does not know all of these topics: {words}") from error
            if error.code == HTTPStatus.UNPROCESSABLE_ENTITY and not subscription.names():
                raise SourceOptionError(f"subscribePattern: the broker at {url} refuses it: {words}") from error
            kind = _UnansweredError if error.code in _BUSY else LayoutError
            raise kind(f"the broker at {url} answers with {error.code}: {words}") from error
        except (LayoutFormatError, HTTPException) as error:
            raise _UnansweredError(f"the answer of the broker at {url} is not whole: {error}") from error
        except OSError as error:
            raise self._silent(url, error) from error

    def _from_bucket(self, subscription: Subscription) -> Sequence[PartitionLayout]:
        prefix = self.connection.snapshot_prefix

        async def read(stores: Stores) -> Sequence[PartitionLayout]:
            return (await read_layouts(await stores.objects(), prefix, subscription.chooses)).layouts

        try:
            with Stores(self.connection) as stores:
                return stores.run(read(stores))
        except SnapshotError as error:
            raise LayoutError(
                f"diskless.snapshot=bucket: below {prefix}: {error}. A broker takes a snapshot every "
                "metadata.log.max.snapshot.interval.ms (an hour by default); if it did, are wal_object_store and "
                "diskless.wal.object.prefix the same as the broker's?"
            ) from error


def still_there(layouts: Layouts, position: Position) -> list[PartitionLayout]:
    """The layouts, from a position on, of those of its partitions that there are.

    Errors are those of `Layouts.of`, but for topics that are gone.
    """
    found = _existing(layouts, sorted(position.topic_ids), position)
    return [layout for layout in found if place_of(layout) in position.offsets]


def those_there(layouts: Layouts, subscription: Subscription, position: Position) -> list[PartitionLayout]:
    """The layouts, from a position on, of those partitions of a subscription that there are.

    Errors are those of `Layouts.of`, but for topics and partitions that do not exist.
    """
    try:
        return layouts.of(subscription, position)
    except AbsentError:
        found = _existing(layouts, subscription.names(), position)
        return [layout for layout in found if subscription.wants(place_of(layout))]


def absent_of(subscription: Subscription, found: Sequence[PartitionLayout]) -> list[str]:
    """What a subscription names that is not among what was found, in words."""
    places = {place_of(layout) for layout in found}
    absent = [place.name for place in sorted(subscription.places - places)]
    return absent + sorted(set(subscription.topics) - {place.topic for place in places})


def _existing(layouts: Layouts, names: Sequence[str], position: Position) -> list[PartitionLayout]:
    """The layouts of those of some topics that there are, in order. A pattern may match none, a name may not."""
    found: list[PartitionLayout] = []
    for start in range(0, len(names), _TOPICS_IN_A_PATTERN):
        pattern = "|".join(map(re.escape, names[start : start + _TOPICS_IN_A_PATTERN]))
        found += layouts.of(Subscription(pattern=pattern), position)
    return sorted(found, key=place_of)


def _words(body: bytes) -> str:
    """What the answer to a bad request says: its message, if it is the broker that answers."""
    text = body.decode("utf-8", "replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def _report(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome is not None else None
    _log.warning("asked again in %.1f s: %s", state.upcoming_sleep, error)
