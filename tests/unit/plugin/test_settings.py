"""The base of settings models, and keeping secrets out of text."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from diskless_core.plugin.config import CommaSeparated, PluginSettings, redact, secret_values


class Example(PluginSettings):
    endpoint_url: str = "http://localhost"
    racks: CommaSeparated = ()
    secret_key: SecretStr | None = None


def test_a_field_is_a_property_with_dots():
    assert Example.model_validate({"endpoint.url": "http://s3"}).endpoint_url == "http://s3"


def test_settings_are_frozen_and_closed():
    with pytest.raises(ValidationError):
        Example().racks = ("a",)
    with pytest.raises(ValidationError):
        Example.model_validate({"endpoint.uri": "http://s3"})


@pytest.mark.parametrize(("text", "racks"), [("", ()), (" a , b", ("a", "b")), ("a", ("a",))])
def test_a_list_is_separated_by_commas(text, racks):
    assert Example.model_validate({"racks": text}).racks == racks


def test_all_secrets_that_are_set_are_found_and_can_be_removed_from_a_text():
    secrets = secret_values(Example(secret_key=SecretStr("hunter2")))

    assert secrets == {"hunter2"}
    assert redact("login with hunter2 failed, hunter2 is wrong", secrets) == (
        "login with ********** failed, ********** is wrong"
    )
    assert secret_values(Example()) == frozenset()


def test_a_secret_that_contains_another_is_removed_whole():
    assert redact("key=hunter2-long", ["hunter2", "hunter2-long"]) == "key=**********"


def test_a_text_inside_of_a_secret_json_document_is_removed_too():
    options = '{"client": {"token": "hunter2"}, "retries": 3, "keys": ["abc"]}'

    assert redact("hunter2 and abc were refused 3 times", [options]) == "********** and ********** were refused 3 times"


def test_the_repr_of_settings_does_not_show_secrets():
    assert "hunter2" not in repr(Example(secret_key=SecretStr("hunter2")))
