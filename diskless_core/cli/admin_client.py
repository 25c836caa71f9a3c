"""Asks a running broker over its HTTP interface."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from diskless_core.cli import common
from diskless_core.config.listeners import WILDCARD_HOSTS, Listener

TIMEOUT_S = 60.0


class AdminClientError(Exception):
    """The broker could not be asked, or did not do what was asked; the message says what to do."""


class NoAnswerError(AdminClientError):
    """Nobody answered, or not in time; it may have been done."""


class RefusedError(AdminClientError):
    """The broker answered with an error: `reason`, in its own words."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="The broker's HTTP address, instead of admin.listener.")
]


def url_of(listener: Listener | None) -> str:
    """Where a broker of this machine with this `admin.listener` can be asked.

    Raises:
        AdminClientError: it has none, or takes any free port.
    """
    if listener is None or listener.port == 0:
        raise AdminClientError("admin.listener names no port to ask the broker at: give it with --url")
    host = "127.0.0.1" if listener.host in WILDCARD_HOSTS else listener.host
    return str(Listener(listener.name, host, listener.port))


def configured_url(config: Path | None, override: Sequence[str] | None) -> str:
    """`url_of` the configuration that the options make."""
    return url_of(common.load_or_exit(config, override, common.discover_plugins()).broker.admin_listener)


def ask(method: str, url: str, path: str, body: Any = None, *, timeout_s: float | None = None) -> Any:
    """The JSON that `url` answers to a request of `path`.

    Args:
        body: what is sent as JSON; None sends nothing.
        timeout_s: how long an answer is waited for; None for `TIMEOUT_S`.

    Raises:
        NoAnswerError: nobody answers.
        RefusedError: the answer is an error.
        AdminClientError: `url` cannot be asked, or who answers there is no broker.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AdminClientError(f"{url!r} is not of the form http://host:port")
    connection_class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    patience_s = TIMEOUT_S if timeout_s is None else timeout_s
    connection = connection_class(parts.hostname, parts.port, timeout=patience_s)
    try:
        connection.request(method, parts.path.rstrip("/") + path, *_json_body(body))
        response = connection.getresponse()
        answer = response.read()
    except TimeoutError as error:
        raise NoAnswerError(
            f"{url} gave no answer within {patience_s:.0f} s: it may be at work still, its log tells"
        ) from error
    except (OSError, HTTPException) as error:
        raise NoAnswerError(
            f"no broker answers at {url}: {error}. Is it running, and is this its admin.listener?"
        ) from error
    finally:
        connection.close()
    return _content(url, f"{method} {path}", response.status, answer)


def _json_body(body: Any) -> tuple[str | None, dict[str, str]]:
    return (None, {}) if body is None else (json.dumps(body), {"Content-Type": "application/json"})


def _content(url: str, request: str, status: int, body: bytes) -> Any:
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if status != HTTPStatus.OK:
        message = content.get("message") if isinstance(content, dict) else None
        reason = message or "see the log of the broker"
        raise RefusedError(f"{url} answered {status} to {request}: {reason}", reason)
    if content is None:
        raise AdminClientError(f"what answers at {url} is no broker: {request} gave no JSON")
    return content
