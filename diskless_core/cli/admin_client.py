"""Asks a running broker over its HTTP interface."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from diskless_core.cli import common
from diskless_core.config.listeners import WILDCARD_HOSTS, Listener
from diskless_core.layout.codec import LayoutFormatError, decode_layouts
from diskless_core.layout.partition import PartitionLayout

TIMEOUT_S = 60.0
_NODE_ID_HEADER = "Diskless-Node-Id"
_CLUSTER_ID_HEADER = "Diskless-Cluster-Id"


class AdminClientError(Exception):
    """The broker could not be asked, or did not do what was asked; the message says what to do."""


class NoAnswerError(AdminClientError):
    """Nobody answered, or not in time; it may have been done."""


class SilentError(NoAnswerError):
    """Somebody is there, and gave no answer in time."""


class RefusedError(AdminClientError):
    """The broker answered with an error.

    Attributes:
        reason: why, in its own words.
        status: of HTTP.
        may_retry: whether it passes: another broker leads what it takes, or this one can answer soon.
    """

    def __init__(self, message: str, reason: str, status: int = 0, *, may_retry: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.may_retry = may_retry


UrlOption = Annotated[
    list[str] | None, typer.Option("--url", metavar="URL", help="The broker's HTTP address, instead of admin.listener.")
]
"""One address. It is a list so that a second one is refused, and does not take the place of the first: `address`."""

UrlsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        metavar="URLS",
        help="HTTP address of any broker, instead of admin.listener; or of several, by commas or given many times.",
    ),
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


def addresses(urls: Sequence[str] | None, config: Path | None, override: Sequence[str] | None) -> list[str]:
    """Those of `UrlsOption`, or else the one that is configured; errors as `url_of`."""
    return given_addresses(urls) or [configured_url(config, override)]


def address(urls: Sequence[str] | None, config: Path | None, override: Sequence[str] | None) -> str:
    """That of `UrlOption`, or else the one that is configured.

    Raises:
        AdminClientError: several are given; or as `url_of`.
    """
    found = addresses(urls, config, override)
    if len(found) > 1:
        raise AdminClientError(f"this command asks one broker, and --url gives it {len(found)}: {', '.join(found)}")
    return found[0]


def given_addresses(urls: Sequence[str] | None) -> list[str]:
    """Those of `UrlsOption`, each once, in their order."""
    given = [url.strip().rstrip("/") for one in urls or () for url in one.split(",")]
    return list(dict.fromkeys(url for url in given if url))


def ask(
    method: str,
    url: str,
    path: str,
    body: Any = None,
    *,
    timeout_s: float | None = None,
    node_id: int | None = None,
    cluster_id: str | None = None,
) -> Any:
    """The JSON that `url` answers to a request of `path`.

    Args:
        body: what is sent as JSON; None sends nothing.
        timeout_s: how long an answer is waited for; None for `TIMEOUT_S`.
        node_id: the broker that is expected there; None for any. Another one refuses before it does anything.
        cluster_id: its cluster; the same.

    Raises:
        NoAnswerError: nobody answers.
        RefusedError: the answer is an error.
        AdminClientError: `url` cannot be asked, or who answers there is no broker.
    """
    content = _content_of(body, node_id, cluster_id)
    response, answer = _exchange(method, url, path, *content, patience_s=TIMEOUT_S if timeout_s is None else timeout_s)
    _require_broker(url, response.getheader(_NODE_ID_HEADER), node_id)
    require_cluster(url, response.getheader(_CLUSTER_ID_HEADER), cluster_id)
    may_retry = response.status == HTTPStatus.MISDIRECTED_REQUEST or response.getheader("Retry-After") is not None
    return _content(url, f"{method} {path}", response.status, answer, may_retry=may_retry)


def metrics(url: str, timeout_s: float) -> str:
    """What `url` answers to `GET /metrics`, in Prometheus' text format.

    Raises:
        NoAnswerError: nobody answers.
        AdminClientError: `url` cannot be asked, or who answers there has no metrics.
    """
    response, answer = _exchange("GET", url, "/metrics", None, {}, patience_s=timeout_s)
    if response.status != HTTPStatus.OK:
        raise AdminClientError(f"what answers at {url} has no metrics: status {response.status}")
    return answer.decode("utf-8", errors="replace")


def layouts(url: str, topics: Sequence[str]) -> list[PartitionLayout]:
    """Where the records of these topics lie, by partition. Any broker tells of all of them.

    Raises:
        NoAnswerError: nobody answers.
        RefusedError: the answer is an error: there is no topic of one of these names.
        AdminClientError: `url` cannot be asked, or its answer is not whole.
    """
    request, content = "POST /topics/layout", _content_of({"topics": [*topics]}, None, None)
    response, answer = _exchange("POST", url, "/topics/layout", *content, patience_s=TIMEOUT_S)
    if response.status != HTTPStatus.OK:
        _content(url, request, response.status, answer, may_retry=False)
    try:
        return list(decode_layouts(answer.splitlines()))
    except LayoutFormatError as error:
        raise AdminClientError(f"the answer of {url} to {request} is not whole: {error}") from error


def _exchange(
    method: str, url: str, path: str, body: str | None, headers: Mapping[str, str], *, patience_s: float
) -> tuple[HTTPResponse, bytes]:
    parts = urlsplit(url)
    host, port = _place(url)
    connection_class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connection_class(host, port, timeout=patience_s)
    try:
        connection.request(method, parts.path.rstrip("/") + path, body, dict(headers))
        response = connection.getresponse()
        return response, response.read()
    except TimeoutError as error:
        raise SilentError(
            f"{url} gave no answer within {patience_s:.0f} s: it may be at work still, its log tells"
        ) from error
    except (OSError, HTTPException) as error:
        raise NoAnswerError(
            f"no broker answers at {url}: {error}. Is it running, and is this its admin.listener?"
        ) from error
    finally:
        connection.close()


def _content_of(body: Any, node_id: int | None, cluster_id: str | None) -> tuple[str | None, dict[str, str]]:
    """The body of a request, and its headers."""
    named = {_NODE_ID_HEADER: node_id, _CLUSTER_ID_HEADER: cluster_id}
    headers = {header: str(value) for header, value in named.items() if value is not None}
    return (None, headers) if body is None else (json.dumps(body), headers | {"Content-Type": "application/json"})


def _place(url: str) -> tuple[str, int | None]:
    parts = urlsplit(url)
    with suppress(ValueError):  # the port is no number
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts.hostname, parts.port
    raise AdminClientError(f"{url!r} is not of the form http://host:port")


def _require_broker(url: str, found: str | None, expected: int | None) -> None:
    if expected is not None and found not in (None, str(expected)):
        raise AdminClientError(
            f"{url} should be the HTTP interface of broker {expected}, and broker {found} answers there: --url and "
            f"advertised.admin.listener have to be addresses of one broker each, by which it is reached from here"
        )


def require_cluster(url: str, found: str | None, expected: str | None) -> None:
    """Raise AdminClientError where another cluster answers than expected. None is any, and one that is not told."""
    if expected is not None and found not in (None, expected):
        raise AdminClientError(
            f"a broker of the cluster {found} answers at {url}, and the other addresses are of the cluster {expected}: "
            f"--url takes addresses of one cluster"
        )


def _content(url: str, request: str, status: int, body: bytes, *, may_retry: bool) -> Any:
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if status != HTTPStatus.OK:
        message = content.get("message") if isinstance(content, dict) else None
        reason = message or "see the log of the broker"
        message = f"{url} answered {status} to {request}: {reason}"
        raise RefusedError(message, reason, status, may_retry=may_retry)
    if content is None:
        raise AdminClientError(f"what answers at {url} is no broker: {request} gave no JSON")
    return content
