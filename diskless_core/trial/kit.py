"""Runs a contract suite against a configured backend with pytest, in this process, and collects what came of it.

pytest and the suites are an extra: this module is imported once they are known to be there.
"""

from __future__ import annotations

import os
import signal
import tempfile
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any

import pytest

from diskless_core.plugin.config import redact
from diskless_core.trial.deadlines import DeadlinePassedError, deadline
from diskless_core.trial.ground import Ground
from diskless_core.trial.grounds import FAILURES, Grounds
from diskless_core.trial.loop_thread import LoopThread
from diskless_core.trial.outcome import (
    Announce,
    TrialReport,
    TriedPromise,
    Verdict,
    first_sentence,
    sentence_of,
    shortened,
)
from diskless_core.trial.tried import TriedNoun

MAX_HANGS = 3
"""After so many promises that had to be interrupted, the others are not tried."""

_OPTIONS = (
    "-p no:cacheprovider",
    "-p no:terminal",
    "-p no:faulthandler",
    "-p no:warnings",
    "-p pytest_asyncio.plugin",
    "-c /dev/null",
    "--noconftest",
    "-o asyncio_mode=auto",
    "-o asyncio_default_fixture_loop_scope=function",
)
_SURROUNDINGS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "PYTEST_PLUGINS": ""}
"""Whatever pytest plugins and options are there have no part in this."""


_BACKEND_SAYS = "The backend itself says so: mend what it names, and try again. If that does not help:"


class TrialPlugin:
    """The part of pytest that knows of the trial: fixtures, deadlines, verdicts.

    Args:
        claims: attributes of the suite, as what was found out about the backend beforehand.
        secrets: what must not be in a reason.
        announce: called with each verdict.
        only: a part of the sentences of those promises that are tried; empty for all.
    """

    def __init__(
        self,
        grounds: Grounds,
        thread: LoopThread,
        noun: TriedNoun,
        report: TrialReport,
        *,
        claims: Mapping[str, Any],
        secrets: frozenset[str],
        deadline_s: float,
        starts_quickly: bool,
        announce: Announce,
        only: str = "",
    ) -> None:
        self._grounds = grounds
        self._thread = thread
        self._noun = noun
        self._report = report
        self._claims = claims
        self._secrets = secrets
        self._deadline_s = deadline_s
        self._starts_quickly = starts_quickly
        self._announce = announce
        self._only = only
        self._numbers = count(1)
        self._hangs = 0
        self._session: pytest.Session | None = None
        self._failure = ""
        self._is_by_backend = False
        self._left_out = ""
        self._seconds = 0.0

    # -- fixtures -------------------------------------------------------------------------------------------------

    @pytest.fixture
    def ground(self) -> Iterator[Ground]:
        """A place for one test."""
        yield from self._new_ground()

    @pytest.fixture(scope="module")
    def ground_of_all(self) -> Iterator[Ground]:
        """One place for all tests."""
        yield from self._new_ground()

    def _new_ground(self) -> Iterator[Ground]:
        place = self._grounds.place(str(next(self._numbers)))
        ground = Ground(self._grounds, place, self._thread, starts_quickly=self._starts_quickly)
        yield ground
        ground.remove()

    # -- the run --------------------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Try no further promise once the one under way has ended."""
        self._report.ended_early = self._report.ended_early or why
        if self._session is not None:
            self._session.shouldstop = why

    def pytest_configure(self) -> None:
        """What a failed assertion compared is told, as in any test of one's own."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of it is imported already: that has no assertions
            pytest.register_assert_rewrite("diskless_core.testing")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave those out that are not wanted."""
        wanted = self._only.casefold()
        items[:] = [item for item in items if wanted in sentence_of(item.name).casefold()]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell the suite what the backend claims."""
        self._session = session
        for suite in {item.cls for item in session.items if isinstance(item, pytest.Function) and item.cls}:
            for name, value in self._claims.items():
                if hasattr(suite, name):
                    setattr(suite, name, value)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        """Bounded."""
        with deadline(self._deadline_s):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        """Bounded."""
        with deadline(self._deadline_s):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        """Bounded."""
        with deadline(self._deadline_s):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Make one verdict of the three parts of a test."""
        part = yield
        if part.when == "setup":
            self._failure, self._left_out, self._seconds = "", "", 0.0
        self._seconds += call.duration
        if part.skipped:
            where_and_why = part.longrepr if isinstance(part.longrepr, tuple) else ("", 0, "not tried")
            self._left_out = where_and_why[2].removeprefix("Skipped: ")
        elif part.failed and call.excinfo is not None:
            hangs = isinstance(call.excinfo.value, DeadlinePassedError)
            self._fail(_told(call.excinfo, str(part.when)), by_backend=type(call.excinfo.value) in FAILURES)
            if hangs:
                self._hangs += 1
                if self._hangs >= MAX_HANGS:
                    self.stop(f"{MAX_HANGS} promises had to be interrupted: the backend does not answer")
        if part.when == "teardown":
            self._conclude(item)
        return part

    def _fail(self, reason: str, *, by_backend: bool) -> None:
        if not self._failure:
            self._failure, self._is_by_backend = reason, by_backend

    def _conclude(self, item: pytest.Item) -> None:
        reason = self._failure or self._left_out
        verdict = Verdict.BROKEN if self._failure else Verdict.NOT_TRIED if reason else Verdict.KEPT
        function = item.originalname if isinstance(item, pytest.Function) else item.name
        promise = TriedPromise(
            promise=sentence_of(item.name),
            meaning=first_sentence(getattr(getattr(item, "function", None), "__doc__", "")),
            test=item.name,
            verdict=verdict,
            reason=redact(shortened(reason), self._secrets),
            advice=self._advice(item, function) if self._failure else "",
            seconds=round(self._seconds, 3),
        )
        self._report.promises.append(promise)
        self._announce(promise)

    def _advice(self, item: pytest.Item, function: str) -> str:
        suite: type[Any] | None = getattr(item, "cls", None)
        part = next((one.__name__ for one in suite.__mro__ if function in vars(one)), "") if suite else ""
        advice = self._noun.parts.get(part, self._noun.advice)
        return f"{_BACKEND_SAYS} {advice}" if self._is_by_backend else advice


def run(plugin: TrialPlugin, noun: TriedNoun) -> None:
    """Try all promises of a noun.

    SIGINT and SIGTERM let the promise under way end, whatever it has begun, and no other begin; a second one ends it.
    """
    with tempfile.TemporaryDirectory(prefix="diskless-trial-") as folder, _surroundings(folder), _stoppable(plugin):
        options = [part for option in _OPTIONS for part in option.split(" ")]
        pytest.main([*options, "--rootdir", folder, noun.target], plugins=[plugin])


def _told(failed: pytest.ExceptionInfo[BaseException], when: str) -> str:
    error = failed.value
    if isinstance(error, DeadlinePassedError):
        return str(error)
    said = str(error).strip()
    kind = type(error).__name__
    told = said if isinstance(error, AssertionError | pytest.fail.Exception) and said else f"{kind}: {said}"
    if isinstance(error, AssertionError) and not said:
        told = f"the test wanted: {failed.traceback[-1].statement}"
    if isinstance(error, TimeoutError):
        told = "it had not ended in time"
    return {"setup": "before it began: ", "teardown": "when it had ended: "}.get(when, "") + told


@contextmanager
def _surroundings(folder: str) -> Iterator[None]:
    """What pytest and hypothesis read from the environment."""
    changed = {**_SURROUNDINGS, "HYPOTHESIS_STORAGE_DIRECTORY": folder}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _stoppable(plugin: TrialPlugin) -> Iterator[None]:
    asked = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        plugin.stop("it was interrupted")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
