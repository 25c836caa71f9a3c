"""The settings of groups: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources, heartbeats."""

from __future__ import annotations

from functools import partial

from tests.differential.language import Ask, scenario
from tests.differential.scenarios import configs
from tests.differential.scenarios.configs import APPEND, DELETE, GROUP, SET, list_resources
from tests.differential.scenarios.consumer_groups import beat, joined
from tests.differential.words import at, topic, until

change = partial(configs.change, kind=GROUP)
alter = partial(configs.alter, kind=GROUP)
describe = partial(configs.describe, GROUP, keys=None)

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def settled(key: str, value: str) -> Ask:
    return until(describe(keys=[key]), {"results.0.configs.0.value": value})


SCENARIOS = (
    scenario(
        "settings of a group",
        describe(include_synonyms=True, include_documentation=True),
        change(
            (SESSION, SET, "+50000"),
            ("share.renew.acknowledge.enable", SET, "FALSE"),
            ("share.isolation.level", SET, "read_committed"),
            ("streams.num.standby.replicas", SET, "+2"),
        ),
        settled(SESSION, "50000"),
        describe(include_synonyms=True),
        describe(keys=[INTERVAL, "no.such.thing"]),
        until(list_resources(GROUP), {"config_resources.0.resource_type": GROUP}, shown=True),
        change((SESSION, DELETE, None), ("no.such.thing", DELETE, None)),
        settled(SESSION, "45000"),
        change((INTERVAL, SET, "6000"), validate_only=True),
        describe(),
        alter({INTERVAL: "7000"}),
        settled(INTERVAL, "7000"),
        describe(),
        alter({}),
        settled(INTERVAL, "5000"),
    ),
    scenario(
        "settings of a group that it does not take",
        *(
            change((name, SET, value))
            for name, values in {
                SESSION: ("44999", "60001", "60000", "abc", "0", "", " 50000 "),
                INTERVAL: ("4999", "15001", "15000"),
                "consumer.assignment.interval.ms": ("-1", "0", "15001"),
                "share.session.timeout.ms": ("44999", "60001"),
                "share.heartbeat.interval.ms": ("4999", "15001"),
                "share.assignment.interval.ms": ("15001",),
                "share.delivery.count.limit": ("1", "2", "11"),
                "share.partition.max.record.locks": ("99", "4001"),
                "share.record.lock.duration.ms": ("999", "14999", "60001"),
                "share.isolation.level": ("READ_COMMITTED", "read_uncommitted", " read_committed "),
                "share.renew.acknowledge.enable": ("yes", " true"),
                "share.auto.offset.reset": ("EARLIEST", "never", "earliest", "by_duration:"),
                "streams.session.timeout.ms": ("44999", "60001"),
                "streams.heartbeat.interval.ms": ("4999", "15001"),
                "streams.assignment.interval.ms": ("15001",),
                "streams.num.standby.replicas": ("-1", "3"),
                "streams.initial.rebalance.delay.ms": ("-1", "2147483647", "2147483648"),
                "no.such.thing": ("1",),
                "": ("1",),
            }.items()
            for value in values
        ),
        *(
            change(("share.auto.offset.reset", SET, f"by_duration:{duration}"))
            for duration in (
                *("PT1H", "pt1h", "P1D", "P1DT1H2M3.5S", "PT3,5S", "PT3.S", "PT0S", "P0D", "+PT1S", "PT+1S", "P-0D"),
                *("-PT1H", "PT-1H", "P", "PT", "P1DT", "P1M", "P1W", "PT1H1D", "PT1.5H", "PT.5S", "PT1.1234567890S"),
                *("PT-0.5S", "PT1H-1M", "-PT-1H", "-PT0.5S", "--PT1S", " PT1H", "PT1H "),
            )
        ),
        change((SESSION, APPEND, "1")),
        change((SESSION, SET, None)),
        change((SESSION, SET, "50000"), (SESSION, SET, "50001")),
        change((SESSION, SET, "50000"), ("no.such.thing", SET, "1")),
        change(),
        alter({SESSION: None}),
        alter({"no.such.thing": "1"}),
        describe(),
        alter({}),
    ),
    scenario(
        "settings of groups with odd names",
        describe(name=""),
        change((SESSION, SET, "50000"), name=""),
        alter({SESSION: "50000"}, name=""),
        change((SESSION, SET, "50000"), name="$ ä/&"),
        until(describe(name="$ ä/&", keys=[SESSION]), {"results.0.configs.0.value": "50000"}, shown=True),
        alter({}, name="$ ä/&"),
    ),
    scenario(
        "a heartbeat interval of a group's own",
        topic(),
        joined(),
        change((INTERVAL, SET, "8000")),
        until(at(1, beat()), {"heartbeat_interval_ms": 8000}, shown=True),
        # Not shown: Kafka raises a new group's epoch once more if it hears of the topic after the first heartbeat.
        until(at(1, beat(group="$-b")), {"heartbeat_interval_ms": 5000}),
        alter({}),
    ),
)
