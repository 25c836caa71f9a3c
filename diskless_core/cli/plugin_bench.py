"""`diskless plugins bench`: how quick a configured backend is, beside its noun's default."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from diskless_core.cli import common, signals, tables
from diskless_core.cli.plugin_trials import IMPOSSIBLE, NameArgument, NounArgument, chosen, impossible, loaded_for
from diskless_core.clock import SystemClock
from diskless_core.plugin_host.nouns import NOUNS
from diskless_core.trial.bench.comparison import Comparison, compare
from diskless_core.trial.bench.load import ARITHMETIC
from diskless_core.trial.bench.rounds import ROUNDS
from diskless_core.trial.trying import TrialImpossibleError

SECONDS = 30.0


def bench(
    noun: NounArgument,
    name: NameArgument = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each of the two backends is measured.")] = SECONDS,
    as_json: common.JsonOption = False,
) -> None:
    """Measure a backend, as it is configured, at what a broker asks of it, beside the default backend.

    Says whether it would be the bottleneck at 100 MB/s. Works in a place of its own, and removes it again. The exit
    code is 0 if it could be measured, 1 if something is left behind, 2 if it could not be measured.
    """
    manager = common.discover_plugins()
    noun, name = chosen(noun, name, manager)
    if noun not in ROUNDS:
        impossible(f"a {noun} is not measured alone: what it does is bounded by the backends that it works with")
    names = dict.fromkeys([name, NOUNS[noun].default])
    sides = [(one, loaded_for(noun, one, config, override, manager)) for one in names]
    try:
        found = asyncio.run(_until_interrupted(compare(sides, noun, manager, SystemClock(), seconds)))
    except TrialImpossibleError as error:
        impossible(str(error))
    except asyncio.CancelledError:
        typer.echo("interrupted; what was written is removed", err=True)
        raise typer.Exit(IMPOSSIBLE) from None
    _show(found, as_json=as_json)
    raise typer.Exit(1 if found.left_behind else 0)


async def _until_interrupted(work: Coroutine[Any, Any, Comparison]) -> Comparison:
    measuring = asyncio.ensure_future(work)
    with signals.watching(lambda: _cancel(measuring)):
        return await measuring


def _cancel(measuring: asyncio.Future[Comparison]) -> None:
    measuring.cancel()


def _show(found: Comparison, *, as_json: bool) -> None:
    if as_json:
        common.echo_json(found.as_json())
        return
    tables.echo_table(*found.table)
    typer.echo("\n".join([ARITHMETIC, *found.verdicts]))
    if found.left_behind:
        typer.echo("\n".join(["These are left behind, remove them by hand:", *found.left_behind]))
