"""The page of records fits the records."""

from __future__ import annotations

import re

import pytest

from diskless_core.cli import record_reference
from diskless_core.protocol import messages, record_frames

PAGE = record_reference.render()


def test_every_record_is_there_once_under_its_number() -> None:
    headings = re.findall(r"^### (\d+) (\w+)$", PAGE, re.M)

    assert sorted(headings) == sorted(
        (str(number), record.__name__) for number, record in messages.METADATA_RECORDS.items()
    )


@pytest.mark.parametrize("record", messages.METADATA_RECORDS.values(), ids=lambda record: record.__name__)
def test_a_record_has_all_of_its_fields(record) -> None:
    text = (
        PAGE.partition(f"### {record.json['apiKey']} {record.__name__}\n")[2]
        .partition("\n## ")[0]
        .partition("\n### ")[0]
    )

    def names(fields, within=""):
        for field in fields:
            yield f"`{within}{field['name']}`"
            yield from names(field.get("fields", ()), f"{within}{field['name']}[].")

    assert re.findall(r"^\| (`.+?`) \|", text, re.M) == list(names(record.json["fields"]))


def test_every_kind_of_group_record_is_there() -> None:
    rows = re.findall(r"^\| \d+ \| (\w+) \| (\w+) \|$", PAGE, re.M)

    assert set(rows) == {(key.__name__, value.__name__) for key, value in record_frames.GROUP_RECORDS.values.items()}


def test_the_example_is_what_the_codec_writes() -> None:
    [shown] = re.findall(r"^01 78 .*$", PAGE, re.M)

    record = messages.CoordinatorEntryRecord(term=42, sequence=7)
    assert bytes.fromhex(shown) == record_frames.encode_record(record)
