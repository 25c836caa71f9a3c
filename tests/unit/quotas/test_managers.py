"""Who is throttled, on virtual time."""

from __future__ import annotations

import asyncio

from diskless_core.quotas.entities import QuotaKey, entity_of
from diskless_core.quotas.managers import QuotaManager, QuotaManagers
from diskless_core.quotas.rate import Window
from tests.support import virtual_time
from tests.support.virtual_time import VirtualClock

WINDOW = Window(samples=11, sample_ms=1000)
PER_SECOND = 1000.0
EVERY_CLIENT = entity_of({"client-id": None})
EVERY_USER = entity_of({"user": None})


def manager_of(entity, rate=PER_SECOND):
    manager = QuotaManager(QuotaKey.PRODUCER_BYTE_RATE, WINDOW, VirtualClock(asyncio.get_running_loop()))
    manager.replace({entity: {"producer_byte_rate": rate}})
    return manager


def on_virtual_time(test):
    return lambda: virtual_time.run(test)


@on_virtual_time
async def test_clients_below_a_default_of_clients_are_counted_each_by_itself():
    manager = manager_of(EVERY_CLIENT)

    assert manager.record("u", "a", 30_000) == 20_000
    assert manager.record("u", "b", 10_000) == 0
    assert manager.record("v", "b", 1_000) == 1_000


@on_virtual_time
async def test_the_clients_of_a_user_are_counted_together():
    manager = manager_of(EVERY_USER)

    assert manager.record("u", "a", 10_000) == 0
    assert manager.record("u", "b", 1_000) == 1_000
    assert manager.record("v", "b", 10_000) == 0


@on_virtual_time
async def test_what_is_refused_does_not_count():
    manager = manager_of(EVERY_CLIENT)

    assert manager.admit("u", "a", 9_000) == 0
    assert manager.admit("u", "a", 2_000) == 1_000
    assert manager.admit("u", "a", 1_000) == 0


@on_virtual_time
async def test_after_a_while_without_traffic_a_client_has_its_whole_quota_again():
    manager = manager_of(EVERY_CLIENT)
    assert manager.record("u", "a", 10_000) == 0
    await asyncio.sleep(11)

    assert manager.record("u", "a", 10_000) == 0


@on_virtual_time
async def test_a_new_limit_holds_at_once_and_for_what_was_counted_before():
    manager = manager_of(EVERY_CLIENT)
    assert manager.record("u", "a", 10_000) == 0

    manager.replace({entity_of({"client-id": "a"}): {"producer_byte_rate": 500.0}})
    assert manager.record("u", "a", 0) == 10_000
    assert manager.record("u", "b", 50_000) == 0

    manager.replace({})
    assert not manager.is_set
    assert manager.record("u", "a", 50_000) == 0


@on_virtual_time
async def test_more_than_the_complete_samples_hold_cannot_be_had_at_once():
    manager = manager_of(entity_of({"client-id": "a"}))

    assert manager.most_bytes("u", "a") == 10_000
    assert manager.most_bytes("u", "b") == float("inf")


@on_virtual_time
async def test_client_ids_that_are_not_used_any_more_take_no_memory():
    manager = manager_of(EVERY_CLIENT)
    for number in range(100):
        manager.record("u", f"c{number}", 1)
    await asyncio.sleep(12)
    manager.record("u", "another", 1)

    assert len(manager._rates) == 1


@on_virtual_time
async def test_each_key_limits_its_own_direction():
    managers = QuotaManagers(WINDOW, VirtualClock(asyncio.get_running_loop()))
    managers.replace({EVERY_CLIENT: {"consumer_byte_rate": 5.0}, EVERY_USER: {"producer_byte_rate": 7.0}})

    assert managers.fetch.most_bytes("u", "a") == 50
    assert managers.produce.most_bytes("u", "a") == 70
    managers.replace({EVERY_CLIENT: {"consumer_byte_rate": 5.0}})
    assert (managers.fetch.is_set, managers.produce.is_set) == (True, False)
