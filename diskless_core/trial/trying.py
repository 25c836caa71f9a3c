"""One trial from its beginning to its end: look at the backend, run the kit, leave nothing behind."""

from __future__ import annotations

from importlib.util import find_spec

from diskless_core.clock import Clock
from diskless_core.config.load import LoadedConfig
from diskless_core.plugin.config import redact, secret_values
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.trial.grounds import FAILURES, Grounds
from diskless_core.trial.loop_thread import LoopThread
from diskless_core.trial.outcome import Announce, TrialReport
from diskless_core.trial.tried import TRIED

NEEDED = ("pytest", "pytest_asyncio", "hypothesis")
"""What the extra `testing` installs."""

BEFORE = "beforehand"
"""Label of the place in which the backend is looked at."""


REMOVAL_S = 300.0
UNBEGUN_REMOVAL_S = 10.0
"""How long the removal may take in the end: of a trial, and where nothing has begun."""


class TrialImpossibleError(Exception):
    """Nothing could be tried; the message says why, and what to do."""


def require_kit() -> None:
    """See that the contract suites can be imported.

    Raises:
        TrialImpossibleError: something is not installed.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise TrialImpossibleError(
            f"the contract suites need {', '.join(missing)}: install them with `pip install 'diskless[testing]'`"
        )


def secrets_of(loaded: LoadedConfig) -> frozenset[str]:
    """All secrets of a configuration's backends."""
    return frozenset().union(*(secret_values(selected.settings) for selected in loaded.plugins.values()))


def _remove(grounds: Grounds, thread: LoopThread) -> None:
    limit_s = REMOVAL_S if grounds.began else UNBEGUN_REMOVAL_S
    try:
        thread.run(grounds.remove_all(), limit_s)
    except TimeoutError:
        grounds.left_behind.append(f"whatever begins with {grounds.name}: not removed within {limit_s:g} s")


def try_backend(
    loaded: LoadedConfig,
    plugins: PluginManager,
    noun: str,
    clock: Clock,
    *,
    deadline_s: float,
    announce: Announce,
    only: str = "",
) -> TrialReport:
    """Try the backend that is selected for a noun. Blocks for minutes; for the main thread.

    Args:
        deadline_s: how long each promise may take.
        announce: told of each promise as soon as it was tried.
        only: a part of the sentences of those that are tried; empty for all.

    Raises:
        TrialImpossibleError: it could not be tried. Nothing is left behind then.
    """
    require_kit()
    from diskless_core.trial import kit, preflight

    grounds = Grounds(loaded, plugins, clock)
    name = f"{noun}.{loaded.plugins[noun].descriptor.name}"
    with LoopThread() as thread:
        try:
            place = grounds.place(BEFORE)
            report = TrialReport(plugin=name, place=grounds.where(noun))
            try:
                found = thread.run(preflight.look_at(noun, place, clock.monotonic), deadline_s)
            except TimeoutError:
                raise TrialImpossibleError(
                    f"{name} has not started and answered within {deadline_s:g} s: is it reachable?"
                ) from None
            except FAILURES as error:
                said = redact(str(error), secrets_of(loaded))
                raise TrialImpossibleError(f"{name} cannot be tried, as it cannot be used: {said}") from None
            if found.only_here:
                raise TrialImpossibleError(f"{name} cannot be tried alone: {found.only_here}")
            grounds.began = True
            kit.run(
                kit.TrialPlugin(
                    grounds,
                    thread,
                    TRIED[noun],
                    report,
                    claims=found.claims | dict.fromkeys(loaded.plugins[noun].descriptor.capabilities, True),
                    secrets=secrets_of(loaded),
                    deadline_s=deadline_s,
                    starts_quickly=found.start_s < preflight.QUICK_START_S,
                    announce=announce,
                    only=only,
                ),
                TRIED[noun],
            )
        finally:
            _remove(grounds, thread)
    report.left_behind = [redact(what, secrets_of(loaded)) for what in grounds.left_behind]
    if not report.promises and not report.ended_early:
        raise TrialImpossibleError(f"no promise of {noun} has {only!r} in its sentence")
    return report
