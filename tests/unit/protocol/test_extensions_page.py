"""docs/protocol_extensions.md lists what the schemas of the Diskless coordinator's API have beyond KIP-1164."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diskless_core.diskless.api import FIND_COORDINATOR_KEY_TYPE
from diskless_core.protocol.messages import DISKLESS_APIS

PAGE = (Path(__file__).parents[3] / "docs" / "protocol_extensions.md").read_text(encoding="utf-8")


def tagged(fields: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for field in fields:
        if "tag" in field:
            yield field
        yield from tagged(field.get("fields", []))


def test_every_api_is_on_the_page_with_its_key() -> None:
    listed = {int(key): name for name, key in re.findall(r"^\| (Diskless\w+) \| (\d+) \|", PAGE, re.MULTILINE)}

    assert listed == {key: api.request.__name__.removesuffix("Request") for key, api in DISKLESS_APIS.items()}


def test_every_tagged_field_is_on_the_page_with_its_tag_and_says_in_its_schema_that_it_is_ours() -> None:
    fields = [field for api in DISKLESS_APIS.values() for message in api for field in tagged(message.json["fields"])]
    listed = set(re.findall(r"^\| [^|]+ \| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE))

    assert {(field["name"], str(field["tag"])) for field in fields} == listed
    assert [field["name"] for field in fields if not field["about"].startswith("Extension: ")] == []


def test_the_key_type_of_find_coordinator_is_on_the_page() -> None:
    assert f"Key type {FIND_COORDINATOR_KEY_TYPE} " in PAGE
