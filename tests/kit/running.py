"""Runs a noun's contract suites against all of its backends, correct and faulty, in one process of pytest.

`python -m tests.kit.running NOUN [NAME...]` tells what was found. A faulty backend is left at the first finding. Tests
whose sentence is the promise that it breaks come first. No configuration of this project applies: a suite has to find
a defect for an author who has none.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from diskless_core.clock import SystemClock
from tests.kit.fault import Fault
from tests.kit.zoo import CHOSEN_VARIABLE, NOUN_VARIABLE

ROOT = Path(__file__).parents[2]

PATIENCE_S = 1.0
"""How long a suite waits for what a faulty backend never does. For a correct one, as long as ever."""

TEST_LIMIT_S = 15
"""A test of a faulty backend that has not ended by then is taken for one that found something."""

CORRECT_LIMIT_S = 300
RUN_LIMIT_S = 550

_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A failed contract test.

    Attributes:
        test: its name, without parameters.
        message: what it said.
        seconds: what all tests of the case took until then.
    """

    test: str
    message: str
    seconds: float

    @property
    def told(self) -> str:
        """All that an author is told: the sentence and the message."""
        return f"{sentence(self.test)}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run of a noun's set found.

    Attributes:
        findings: by the name of the case.
        passed: how many tests passed, by the name of the case.
        seconds: what all of it took.
    """

    findings: dict[str, Finding] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def sentence(test: str) -> str:
    """The name of a test as words."""
    return test.removeprefix("test_").replace("_", " ")


def run(noun: str, names: Sequence[str] = ()) -> Outcome:
    """Run a noun's set, or the cases of these names, in a process of its own.

    Raises:
        RuntimeError: the run itself failed.
    """
    began_s = _CLOCK.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        environment = os.environ | {NOUN_VARIABLE: noun, CHOSEN_VARIABLE: " ".join(names)}
        environment.pop("PYTEST_ADDOPTS", None)
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--report", str(report)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_LIMIT_S,
            check=False,
        )
        if not report.exists():
            raise RuntimeError(f"the set of {noun} could not be run:\n{done.stdout[-5000:]}{done.stderr[-5000:]}")
        found = json.loads(report.read_text())
    return Outcome(
        findings={name: Finding(**finding) for name, finding in found["findings"].items()},
        passed=found["passed"],
        seconds=_CLOCK.monotonic() - began_s,
    )


class _Measuring:
    """The plugin of pytest that orders, cuts short, and notes."""

    def __init__(self) -> None:
        self.findings: dict[str, Finding] = {}
        self.passed: dict[str, int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            limit_s = TEST_LIMIT_S if isinstance(_case(item), Fault) else CORRECT_LIMIT_S
            item.add_marker(pytest.mark.timeout(limit_s, method="signal"))
            item.repr_failure = _no_traceback  # type: ignore[method-assign]
        position = {cls: at for at, cls in enumerate(dict.fromkeys(_class(item) for item in items))}
        items.sort(key=lambda item: (position[_class(item)], not _names_promise(item)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        case = _case(item)
        if not isinstance(case, Fault) or case.name not in self.findings:
            return None
        item.session._setupstate.teardown_exact(nextitem)  # what the test before left for this one
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        from diskless_core.testing import patience  # not before pytest is there to rewrite its assertions

        case = _case(item)
        if isinstance(case, Fault):
            patience.wait_at_most(PATIENCE_S)
        else:
            patience.wait_at_most(patience.DEFAULT_S)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report: Any = yield
        name = _case(item).name
        self._seconds[name] += report.duration
        if report.failed and name not in self.findings:
            message = "" if call.excinfo is None else _words(call.excinfo.value)
            test = getattr(item, "originalname", item.name)
            self.findings[name] = Finding(test=test, message=message, seconds=round(self._seconds[name], 3))
        elif report.passed and report.when == "call":
            self.passed[name] += 1
        return report


def _no_traceback(excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
    """What is told of a failure are its words. A traceback costs time, and that of a time-out may have no lines."""
    return _words(excinfo.value)


def _words(error: BaseException) -> str:
    words = f"{type(error).__name__}: {error}" if not isinstance(error, AssertionError) else str(error)
    notes = getattr(error, "__notes__", [])
    inner = [_words(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return "\n".join([words, *inner, *notes])[:4000]


def _class(item: pytest.Item) -> Any:
    return getattr(item, "cls")  # noqa: B009 - every item is a method


def _case(item: pytest.Item) -> Any:
    return _class(item).kit_case


def _names_promise(item: pytest.Item) -> bool:
    case = _case(item)
    return isinstance(case, Fault) and case.promise.lower() in sentence(getattr(item, "originalname", "")).lower()


def _run_here(report: Path) -> None:
    measuring = _Measuring()
    arguments = ["-c", os.devnull, "--rootdir", str(ROOT), "--noconftest", "--import-mode=importlib", "-q", "--tb=no"]
    arguments += ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=1"]
    code = pytest.main([*arguments, str(ROOT / "tests" / "kit" / "cases.py")], plugins=[measuring])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        findings = {name: dataclasses.asdict(finding) for name, finding in measuring.findings.items()}
        report.write_text(json.dumps({"findings": findings, "passed": measuring.passed}))


def _tell(noun: str, names: Sequence[str]) -> None:
    outcome = run(noun, names)
    for name in sorted({*outcome.passed, *outcome.findings}):
        found = outcome.findings.get(name)
        passed = outcome.passed.get(name, 0)
        if found is None:
            print(f"{name}: NOTHING FOUND, {passed} tests passed")
        else:
            print(f"{name}: after {found.seconds} s and {passed} tests: {sentence(found.test)}\n    {found.message}")
    print(f"{noun}: {outcome.seconds:.1f} s")


if __name__ == "__main__":
    if sys.argv[1] == "--report":
        _run_here(Path(sys.argv[2]))
    else:
        _tell(sys.argv[1], sys.argv[2:])
