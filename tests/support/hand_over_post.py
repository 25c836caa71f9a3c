"""Carries objects from shard to shard as a network would: requests and answers get lost, or arrive much later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from diskless_core.coordinator.errors import (
    CoordinatorError,
    NotCoordinatorError,
    OutcomeUnknownError,
    RequestRefusedError,
)
from diskless_core.diskless.commands import HandOver
from diskless_core.diskless.shard import DisklessShard

LeaderOf = Callable[[int], DisklessShard | None]


class Loss(Enum):
    """What becomes of a request whose sender gets no answer."""

    REQUEST = auto()
    ANSWER = auto()
    LATE = auto()
    """It arrives at `Post.deliver_late`."""


@dataclass(slots=True)
class Post:
    """All hand-overs of a cluster.

    Attributes:
        calls: key and receiver of each object of each request, in the order in which they were sent.
        losses: what happens to the next requests.
        unreachable: shards to which nothing gets.
        invalid: keys of objects for which a request is refused whole.
    """

    leader_of: LeaderOf
    calls: list[tuple[str, int]] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    unreachable: set[int] = field(default_factory=set)
    invalid: set[str] = field(default_factory=set)
    late: list[tuple[int, Sequence[HandOver]]] = field(default_factory=list)

    async def send(self, owner: int, files: Sequence[HandOver]) -> None:
        self.calls += [(file.object_key, owner) for file in files]
        if owner in self.unreachable:
            raise CoordinatorError(f"injected: {owner} cannot be reached")
        if any(file.object_key in self.invalid for file in files):
            raise RequestRefusedError("injected: INVALID_REQUEST")
        loss = self.losses.pop(0) if self.losses else None
        if loss is Loss.LATE:
            self.late.append((owner, files))
        if loss not in (Loss.LATE, Loss.REQUEST):
            await self._deliver(owner, files)
        if loss is not None:
            raise OutcomeUnknownError(f"injected: lost {loss.name.lower()}")

    async def deliver_late(self) -> None:
        """Let arrive what was held up, if there is somebody to receive it."""
        late, self.late = self.late, []
        for owner, files in late:
            await self._deliver(owner, files)

    async def _deliver(self, owner: int, files: Sequence[HandOver]) -> None:
        leader = self.leader_of(owner)
        if leader is None:
            raise NotCoordinatorError(f"nobody leads {owner}")
        await leader.hand_over(files)


@dataclass(frozen=True, slots=True)
class Letterbox:
    """One coordinator, by post. Questions are not hand-overs: nothing but `unreachable` holds them up."""

    post: Post
    owner: int

    async def hand_over(self, files: Sequence[HandOver]) -> None:
        await self.post.send(self.owner, files)

    async def describe_files(self, object_keys: Sequence[str]) -> Mapping[str, bool]:
        return await self._leader().describe_files(object_keys)

    async def raise_horizon(self, horizon_ms: int) -> None:
        await self._leader().raise_horizon(horizon_ms)

    def _leader(self) -> DisklessShard:
        leader = self.post.leader_of(self.owner)
        if leader is None or self.owner in self.post.unreachable:
            raise NotCoordinatorError(f"injected: nobody leads {self.owner}")
        return leader
