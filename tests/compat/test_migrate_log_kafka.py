"""A cluster is moved to `coordinator_log=kafka` and away from it, and the migration dies on both ways."""

from __future__ import annotations

from typing import Any

from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_log import log_properties
from tests.support.migration import LISTENERS, MovingBroker


def test_a_migration_to_and_from_apache_kafka_that_dies_is_finished_by_the_next(
    new_broker: Any, topic: str, apache_kafka: ApacheKafka
) -> None:
    properties = log_properties(apache_kafka.bootstrap, "moving_")
    settings = LISTENERS | {
        f"coordinator_log.kafka.{name}": str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in properties.items()
    }
    broker = new_broker(settings | {"coordinator_log": "local"})
    moving = MovingBroker(broker, topic, settings)
    moving.produce_and_read(30)
    broker.stop()
    for source, target in (("local", "kafka"), ("kafka", "bucket")):
        moving.migrate_and_die(source, target)
        left = moving.run("serve", settings=settings | {"coordinator_log": source, "admin.listener": ""})
        assert (left.returncode, f"moved to {target}" in left.stderr) == (1, True), left.stderr
        moved = moving.migrate(source, target)
        assert moved.returncode == 0, moved.stderr
        assert "was moved before" in moved.stdout, "it goes on where it died"
        assert moved.stdout.count("was moved: ") >= 1, "and does the rest"
        broker.start({"coordinator_log": target})
        moving.produce_and_read(30)
        broker.stop()
    refused = moving.migrate("bucket", "kafka")
    assert (refused.returncode, "was left by an earlier migration" in refused.stderr) == (1, True), refused.stderr
