"""What is remembered of the owners that were reminded of objects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from diskless_core.diskless.commands import HandOver
from diskless_core.files import hand_overs
from diskless_core.files.hand_overs import HandOvers
from tests.support.virtual_time import VirtualClock, run


class FirstOwner:
    """Is told of objects. None of them is new to it, so they go on waiting elsewhere."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def hand_over(self, files: Sequence[HandOver]) -> None:
        self.told += [file.object_key for file in files]


class Reminding:
    """Rounds over what waits for an owner before."""

    def __init__(self) -> None:
        async def nothing_to_note(*_: object) -> None:
            pass

        shard: Any = SimpleNamespace(id="diskless-1", term=1, files_handed_over=nothing_to_note)
        self.owner = FirstOwner()
        coordinators: Any = {0: self.owner}
        self._hand_overs = HandOvers(shard, coordinators, VirtualClock(asyncio.get_running_loop()))

    async def round(self, waiting: Sequence[str]) -> list[str]:
        """What the owner is told of in a round with these."""
        self.owner.told.clear()
        for object_key in waiting:
            self._hand_overs.remind(0, HandOver(object_key, (0, 1), 0, 0))
        self._hand_overs.end_round()
        await self._hand_overs.idle()
        return list(self.owner.told)

    @property
    def remembered(self) -> int:
        return len(self._hand_overs._reminded)


def test_an_owner_is_reminded_once_of_what_waits_on() -> None:
    async def main() -> None:
        reminding = Reminding()
        assert await reminding.round(["a", "b"]) == ["a", "b"]
        assert await reminding.round(["a", "b", "c"]) == ["c"]
        assert [await reminding.round(["a", "b", "c"]) for _ in range(3)] == [[], [], []]

    run(main)


def test_nothing_is_remembered_of_what_waits_no_more() -> None:
    async def main() -> None:
        reminding = Reminding()
        for number in range(20):
            waiting = [f"{number}-{one}" for one in range(100)]
            assert await reminding.round(waiting) == waiting
        assert reminding.remembered <= 2 * 100
        for _ in range(2):
            await reminding.round([])
        assert reminding.remembered == 0

    run(main)


def test_of_more_than_can_be_remembered_some_are_reminded_again_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_overs, "REMINDED_FILES", 100)

    async def main() -> None:
        reminding = Reminding()
        waiting = [f"{one}" for one in range(1100)]
        assert await reminding.round(waiting) == waiting
        assert reminding.remembered == 100
        again = [key for _ in range(2000) for key in await reminding.round(waiting)]
        assert reminding.remembered == 100
        assert 1000 < len(again) < 4000, "each of a thousand about twice, in two thousand rounds"
        assert len(set(again)) > 700

    run(main)
