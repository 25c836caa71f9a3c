"""Settings of `segment_compaction=spark`."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from diskless_spark.config import SparkCompactionSettings


def test_properties_of_spark_come_as_a_json_object_and_are_told_to_nobody() -> None:
    settings = SparkCompactionSettings.model_validate(
        {"conf": '{"spark.ui.enabled": false, "spark.executor.cores": 2, "spark.hadoop.fs.s3a.secret.key": "hush"}'}
    )
    options = settings.session()
    assert options.conf == {
        "spark.ui.enabled": "false",
        "spark.executor.cores": "2",
        "spark.hadoop.fs.s3a.secret.key": "hush",
    }
    assert "hush" not in f"{settings!r} {options!r}"


@pytest.mark.parametrize("conf", ["[]", "{", '{"executor.cores": 2}', '{"spark.jars": ["a.jar"]}'])
def test_other_properties_are_refused(conf: str) -> None:
    with pytest.raises(ValidationError):
        SparkCompactionSettings.model_validate({"conf": conf})


def test_tasks_get_what_is_theirs() -> None:
    building = SparkCompactionSettings(parallel_reads=7, buffer_max_bytes=9 << 20).building()
    assert (building.parallel_reads, building.buffer_max_bytes, building.read_max_bytes) == (7, 9 << 20, 8 << 20)
    assert not hasattr(building, "conf")
