"""How the broker logs: one line an event, key and value, as text for people or as JSON for machines.

Modules take `structlog.get_logger(__name__)` and bind what they know (`shard=`, `topic=`, `partition=`).
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from diskless_core.plugin.config import redact

LIBRARY_LEVEL = logging.WARNING
"""Libraries are heard from here on, whatever the level: below it, some log signed headers and whole requests."""


def configure(
    log_format: str,
    level: str,
    node_id: int | None,
    *,
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Set up structlog, and the standard library's logging through it. Meant to be called once, before any logging.

    Args:
        log_format: `text` or `json`.
        level: the least severe level that is written: `debug`, `info`, `warning` or `error`.
        node_id: `node.id`, which goes into every line as `node`. None where it is not known yet, see `name_node`.
        secrets: values that no line may contain; they are replaced wherever they turn up, in tracebacks too.
        stream: where to write; standard error unless given.
    """
    name_node(node_id)
    target = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _stamp_node,
    ]
    rendering = _rendering(log_format, colors=target.isatty())
    rendering.append(_RedactingRenderer(rendering.pop(), secrets))
    structlog.configure(
        processors=[*common, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_LoggerFactory(target),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(threshold, LIBRARY_LEVEL), force=True)


_node: list[int] = []


def name_node(node_id: int | None) -> None:
    """From now on every line has this node id."""
    _node[:] = [] if node_id is None else [node_id]


def _rendering(log_format: str, *, colors: bool) -> list[Processor]:
    if log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # The plain formatter: the pretty ones print local variables, and with them secrets.
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]


class _NamedLogger(structlog.WriteLogger):
    """A logger that still knows its module's name when the processors run."""

    def __init__(self, file: TextIO, name: str | None) -> None:
        super().__init__(file)
        self.name = name


class _LoggerFactory:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, name: str | None = None) -> _NamedLogger:
        return _NamedLogger(self._stream, name)


def _stamp_node(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if _node:
        event.setdefault("node", _node[0])
    return event


class _RedactingRenderer:
    """Replaces secrets in the finished line, in whichever way the renderer may have escaped them."""

    def __init__(self, render: Processor, secrets: Iterable[str]) -> None:
        self._render = render
        self._forms = frozenset(
            form for secret in secrets for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1])
        )

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        return redact(str(self._render(logger, method, event)), self._forms)
