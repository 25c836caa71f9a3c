"""Where records lie, as a running broker tells it, or the snapshots that brokers left in the bucket."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from diskless_core.plugin.layout import PartitionLayout
from diskless_core.plugin.layout_codec import LayoutFormatError, decode_layouts
from diskless_core.snapshot.layouts import read_layouts
from diskless_spark.source.connection import Connection
from diskless_spark.source.offsets import NOWHERE, Position
from diskless_spark.source.options import SnapshotKind, Subscription
from diskless_spark.source.planning import place_of
from diskless_spark.source.stores import Stores

_TIMEOUT_S = 60.0
_TOPICS_IN_A_PATTERN = 50
"""So that requests stay short."""


class LayoutError(Exception):
    """It cannot be found out where records lie; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """Asks for the layouts of partitions, each time anew."""

    connection: Connection
    kind: SnapshotKind

    def of(self, subscription: Subscription, position: Position = NOWHERE) -> list[PartitionLayout]:
        """The layouts of all partitions of a subscription.

        Args:
            position: what lies before it may be left out, so that the answer is no longer than what is to be read.

        Raises:
            LayoutError: nobody can tell, or a topic or a partition does not exist.
        """
        if self.kind is SnapshotKind.BUCKET:
            found = self._from_bucket(subscription)
        else:
            found = self._from_broker(subscription, position)
        wanted = [layout for layout in found if subscription.wants(place_of(layout))]
        _check(subscription, wanted)
        return sorted(wanted, key=place_of)

    def _from_broker(self, subscription: Subscription, position: Position) -> Sequence[PartitionLayout]:
        url, names = self.connection.url, subscription.names()
        if not url.startswith(("http://", "https://")):
            raise LayoutError(f"diskless.url: {url!r} is no address of a broker, as http://host:9644 is")
        wanted = {"topics": names} if names else {"pattern": subscription.pattern}
        body = {**wanted, "from": {topic["id"]: topic["offsets"] for topic in position.noted().values()}}
        request = urllib.request.Request(  # noqa: S310 - http, as checked
            f"{url}/topics/layout", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - http, as checked
                return list(decode_layouts(answer))
        except urllib.error.HTTPError as error:
            with error:
                words = error.read().decode("utf-8", "replace")
            if error.code == HTTPStatus.NOT_FOUND and names:
                raise LayoutError(f"the broker at {url} does not know all of these topics: {words}") from error
            raise LayoutError(f"the broker at {url} answers with {error.code}: {words}") from error
        except LayoutFormatError as error:
            raise LayoutError(f"the answer of the broker at {url} is not whole: {error}") from error
        except OSError as error:
            raise LayoutError(
                f"the broker at {url} does not answer: {error}; diskless.url says where it is, and "
                "diskless.snapshot=bucket reads what the last snapshots know, without a broker"
            ) from error

    def _from_bucket(self, subscription: Subscription) -> Sequence[PartitionLayout]:
        names = frozenset(subscription.names())
        pattern = re.compile(subscription.pattern)

        def wants(topic: str) -> bool:
            return topic in names if names else pattern.fullmatch(topic) is not None

        async def read(stores: Stores) -> Sequence[PartitionLayout]:
            return (await read_layouts(await stores.objects(), self.connection.snapshot_prefix, wants)).layouts

        with Stores(self.connection) as stores:
            return stores.run(read(stores))


def still_there(layouts: Layouts, position: Position) -> list[PartitionLayout]:
    """The layouts, from a position on, of those of its partitions that there are.

    Errors are those of `Layouts.of`, but for topics that are gone.
    """
    names = sorted(position.topic_ids)
    found: list[PartitionLayout] = []
    for start in range(0, len(names), _TOPICS_IN_A_PATTERN):
        pattern = "|".join(map(re.escape, names[start : start + _TOPICS_IN_A_PATTERN]))
        found += layouts.of(Subscription(pattern=pattern), position)
    return [layout for layout in found if place_of(layout) in position.offsets]


def _check(subscription: Subscription, found: Sequence[PartitionLayout]) -> None:
    places = {place_of(layout) for layout in found}
    absent = [f"{place.topic}-{place.partition}" for place in sorted(subscription.places - places)]
    absent += sorted(set(subscription.topics) - {place.topic for place in places})
    if absent:
        raise LayoutError(f"there is no {', '.join(absent)}")
