"""What is written about settings comes from the models."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from diskless_core.config.broker import BrokerConfig
from diskless_core.config.describe import describe_settings
from diskless_core.config.reference import render_reference, render_settings
from diskless_core.plugin.config import CommaSeparated, PluginSettings
from tests.broken_plugins import stand_ins


class Example(PluginSettings):
    password: SecretStr = Field(default=SecretStr("hunter2"), description="A secret.")
    ratio: float = Field(description="A share.")
    mode: Literal["fast", "safe"] = Field(default="safe", description="A choice.")
    racks: CommaSeparated = Field(default=("a", "b"), description="A list.")
    limit_bytes: int | None = Field(default=None, ge=1, le=10, description="A limit, in bytes.")
    threads: int = Field(default=1, gt=0, lt=10, description="A number.")
    fsync: bool = Field(default=True, description="A switch.")


def described():
    return {setting.name: setting for setting in describe_settings(Example, "noun.name.")}


def test_types_have_kafkas_names():
    assert [setting.type for setting in described().values()] == [
        "password",
        "double",
        "string",
        "list",
        "int",
        "int",
        "boolean",
    ]


def test_defaults_are_written_as_in_a_file_and_never_those_of_secrets():
    assert [setting.default for setting in described().values()] == [None, None, "safe", "a,b", None, "1", "true"]
    assert described()["noun.name.ratio"].required
    assert not described()["noun.name.password"].required


def test_ranges_and_choices_are_told():
    assert described()["noun.name.limit.bytes"].valid_values == "≥ 1, ≤ 10"
    assert described()["noun.name.threads"].valid_values == "> 0, < 10"
    assert described()["noun.name.mode"].valid_values == "fast, safe"
    assert described()["noun.name.racks"].valid_values == ""


def test_a_setting_names_its_environment_variable():
    assert described()["noun.name.limit.bytes"].environment == "DISKLESS_CONFIG_NOUN_NAME_LIMIT_BYTES"


def test_the_page_has_every_setting_of_the_broker_and_of_the_given_plugins():
    page = render_reference({"wal_object_store": stand_ins.diskless_wal_object_stores()})

    for field in BrokerConfig.model_fields.values():
        assert page.count(f"#### `{field.alias}`\n") == 1
    assert "### wal_object_store=fsspec" in page
    assert "#### `wal_object_store.fsspec.timeout.ms`\n\nTime-out of a request" in page


def test_a_property_has_its_meaning_first_then_type_default_and_valid_values():
    page = render_settings(describe_settings(Example), {"mode"})

    assert "#### `mode`\n\nA choice.\n\n*Type:* string · *Default:* `safe` · *Valid values:* fast, safe · " in page
    assert "fast, safe · *Update mode:* cluster-wide\n" in page
    assert "*Type:* int · *Default:* none · *Valid values:* ≥ 1, ≤ 10 · *Update mode:* read-only\n" in page


def test_a_meaning_is_taken_for_neither_html_nor_emphasis():
    class Odd(PluginSettings):
        odd: str = Field(default="", description="As <name>|*, of a_b_c; `<as_it_is>`.")

    assert "\nAs &lt;name>|\\*, of a\\_b\\_c; `<as_it_is>`.\n" in render_settings(describe_settings(Odd))
