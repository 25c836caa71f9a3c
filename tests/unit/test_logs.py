"""What a log line looks like, and what it never contains."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from diskless_core import logs


@pytest.fixture
def stream():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_event_context_level_module_node_and_time(stream):
    logs.configure("json", "info", 7, stream=stream)

    structlog.get_logger("diskless_core.example").bind(shard="x-0").info("it happened", offset=3)

    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "it happened",
        "level": "info",
        "logger": "diskless_core.example",
        "node": 7,
        "offset": 3,
        "shard": "x-0",
    }


def test_a_line_has_the_node_id_from_when_it_is_known(stream):
    logs.configure("json", "info", None, stream=stream)
    logger = structlog.get_logger("x")

    logger.info("asking")
    logs.name_node(7)
    logger.info("asked")

    assert [line.get("node") for line in lines(stream)] == [None, 7]


def test_less_severe_events_are_not_written(stream):
    logs.configure("json", "warning", 1, stream=stream)

    structlog.get_logger("x").info("quiet")
    structlog.get_logger("x").warning("loud")

    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_libraries_speak_in_the_same_format_from_warnings_on(stream):
    logs.configure("json", "debug", 1, stream=stream)

    logging.getLogger("botocore.auth").debug("Authorization: AWS4-HMAC-SHA256 Credential=abc")
    logging.getLogger("aiobotocore").warning("retry %d", 2)

    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"], line["node"]) == ("retry 2", "warning", "aiobotocore", 1)


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("secret", ["hunter2-hunter2", 'quo"te\\slash', "newline\nsecret"])
def test_a_secret_is_in_no_line_wherever_it_comes_from(stream, log_format, secret):
    logs.configure(log_format, "debug", 1, secrets=[secret], stream=stream)
    logger = structlog.get_logger("x")

    logger.info(f"using {secret}", settings={"password": secret})
    try:
        raise RuntimeError(f"denied for {secret}")
    except RuntimeError:
        logger.exception("it failed")
        logging.getLogger("library").exception("failed with %r", secret)

    written = stream.getvalue()
    assert "RuntimeError" in written
    for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]):
        assert form not in written


def test_local_variables_are_not_part_of_a_traceback(stream):
    logs.configure("text", "debug", 1, stream=stream)
    local_value = "only-a-local-variable"

    try:
        raise RuntimeError(str(len(local_value)))
    except RuntimeError:
        structlog.get_logger("x").exception("it failed")

    assert "RuntimeError: 21" in stream.getvalue()
    assert "only-a-local-variable" not in stream.getvalue().replace('local_value = "only-a-local-variable"', "")


def test_what_a_request_bound_is_in_its_lines(stream):
    logs.configure("text", "info", 1, stream=stream)

    with structlog.contextvars.bound_contextvars(topic="orders", partition=4):
        structlog.get_logger("x").info("refused")
    structlog.get_logger("x").info("after")

    refused, after = stream.getvalue().splitlines()
    assert "topic=orders" in refused
    assert "partition=4" in refused
    assert "topic" not in after
