"""Ids as Kafka draws them."""

from __future__ import annotations

import random
import uuid

import pytest

from diskless_core.clock import RESERVED_UUIDS, SystemClock, draw_uuid
from diskless_core.protocol.names import uuid_text


class Draws(random.Random):
    """Gives these numbers, one after the other."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(0)
        self.numbers = list(numbers)

    def getrandbits(self, bits: int, /) -> int:
        assert bits == 128
        return self.numbers.pop(0)


@pytest.mark.parametrize("first_byte", [0xF8, 0xF9, 0xFA, 0xFB])
def test_an_id_whose_text_would_begin_like_an_option_is_drawn_again(first_byte: int) -> None:
    fine = uuid.UUID(int=0xFC << 120, version=4)
    assert uuid_text(uuid.UUID(int=first_byte << 120)).startswith("-")
    assert draw_uuid(Draws(first_byte << 120, (first_byte << 120) + 99, fine.int)) == fine


def test_reserved_ids_are_those_of_kafka_and_no_id_of_this_kind_is_among_them() -> None:
    assert {uuid_text(one) for one in RESERVED_UUIDS} == {"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ"}
    assert draw_uuid(Draws(0, 1)) not in RESERVED_UUIDS


def test_thousands_of_ids_are_all_different_and_fit_for_topics() -> None:
    drawn = {SystemClock(seed=7).new_uuid()} | {SystemClock().new_uuid() for _ in range(5000)}
    assert len(drawn) == 5001
    assert not any(uuid_text(one).startswith("-") or one in RESERVED_UUIDS or one.version != 4 for one in drawn)
