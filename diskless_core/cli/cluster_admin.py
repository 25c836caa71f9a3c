"""The HTTP interfaces of a cluster's brokers: any tells of the cluster, and each does what it leads. It blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from tenacity import Retrying, retry_if_exception, stop_after_delay

from diskless_core.cli import admin_client
from diskless_core.cli.admin_client import AdminClientError, NoAnswerError, RefusedError, SilentError
from diskless_core.clock import SystemClock
from diskless_core.cluster.view import ClusterView
from diskless_core.plugin.retrying import Backoff

PATIENCE_S = 60.0
"""How long a leader is looked for that nobody knows, or that does not answer: a broker may be about to take over."""

BACKOFF = Backoff(first_ms=200, max_ms=2_000)

_LOOK_S = 5.0
"""How long one of several brokers may take to tell of the cluster, before the next one is asked."""

_VIEW = TypeAdapter(ClusterView)


def passes(error: BaseException) -> bool:
    """Whether what was asked for can be asked for again: at the next leader, or here when the broker is back."""
    return isinstance(error, NoAnswerError) or (isinstance(error, RefusedError) and error.may_retry)


class ClusterAdmin:
    """A cluster, by the addresses of some of its brokers. The others are found by what these tell.

    Args:
        urls: where to ask first, one after the other; at least one.
    """

    def __init__(self, urls: Sequence[str], *, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self._given = list(urls)
        self._told: dict[int, str] = {}
        self._met: dict[int, str] = {}
        self._cluster_id: str | None = None

    def view(self) -> ClusterView:
        """What the first broker that answers says.

        Raises:
            NoAnswerError: none does; the message has the reason of each that was given.
            RefusedError: the same, but some may soon.
            AdminClientError: something else than a broker answers.
        """
        urls = list(dict.fromkeys([*self._given, *self._told.values()]))
        problems: dict[str, AdminClientError] = {}
        for limit_s in (_LOOK_S, None) if len(urls) > 1 else (None,):
            for url in urls:
                try:
                    return self._noted(url, admin_client.ask("GET", url, "/cluster", timeout_s=limit_s))
                except AdminClientError as error:
                    if not passes(error):
                        raise
                    problems[url] = error
            urls = [url for url in urls if isinstance(problems[url], SilentError)]
        raise next(iter(problems.values()))

    def _noted(self, url: str, said: Any) -> ClusterView:
        try:
            found = _VIEW.validate_python(said)
        except ValidationError as error:
            raise AdminClientError(f"what answers at {url} is no broker: GET /cluster gave something else") from error
        admin_client.require_cluster(url, found.cluster_id, self._cluster_id)
        self._cluster_id = found.cluster_id
        self._told = {broker.node_id: broker.http for broker in found.brokers if broker.http is not None}
        if url not in self._told.values():
            self._met[found.node_id] = url
        return found

    def not_at(self, url: str) -> None:
        """Nobody has answered there: a broker that was met there counts as where it says that it is."""
        self._met = {node_id: met for node_id, met in self._met.items() if met != url}

    def url_of(self, node_id: int) -> str:
        """Where a broker can be asked: as it says itself, or where it was met.

        Raises:
            AdminClientError: it is not known, or nobody knows now.
        """
        known = self._met.get(node_id) or self._told.get(node_id)
        if known is not None:
            return known
        for url in self._given:
            if url not in self._met.values():
                try:
                    self._noted(url, admin_client.ask("GET", url, "/cluster"))
                except NoAnswerError:
                    continue
        if node_id not in self._met:
            raise AdminClientError(
                f"broker {node_id} is needed, and has told of no HTTP interface that is reached from here: set its "
                f"admin.listener or its advertised.admin.listener, or give its address with --url beside the others"
            )
        return self._met[node_id]

    def ask_leader(
        self,
        leader: Callable[[ClusterView], int | None],
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """The answer of the broker that leads what it takes; again when it moves, or dies with the answer.

        The request has to be one that may be done twice. Errors as `admin_client.ask`: at once if nobody tells of the
        cluster, else when patience ends.

        Args:
            leader: who it is most likely. The other live brokers are asked after it.
        """

        first: ClusterView | None = self.view()

        def attempt() -> Any:
            nonlocal first
            view, first = first or self.view(), None
            failure = AdminClientError("there is no live broker")
            for node_id in _candidates(view, leader(view)):
                try:
                    url = self.url_of(node_id)
                    return admin_client.ask(
                        method, url, path, body, timeout_s=timeout_s, node_id=node_id, cluster_id=view.cluster_id
                    )
                except RefusedError as error:
                    if not error.may_retry:
                        raise
                    failure = error
                except NoAnswerError as error:
                    self.not_at(url)
                    failure = error
            raise failure

        retrying = Retrying(
            retry=retry_if_exception(passes),
            stop=stop_after_delay(self.patience_s),
            wait=BACKOFF.wait(SystemClock()),
            reraise=True,
        )
        return retrying(attempt)


def _candidates(view: ClusterView, first: int | None) -> Iterator[int]:
    if first is not None:
        yield first
    yield from (one.node_id for one in view.brokers if not one.is_fenced and one.node_id != first)
