"""Brokers that kill or stop themselves in the middle of something, once a test has armed them."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.support.broker import BrokerProcess

_COMMAND = """#!{python}
import importlib, os, pathlib, sys

module_name, _, attribute = {path!r}.partition(":")
owner, armed = importlib.import_module(module_name), pathlib.Path({armed!r})
*parents, last = attribute.split(".")
for parent in parents:
    owner = getattr(owner, parent)
original = getattr(owner, last)

async def dies(*args, **kwargs):
    result = await original(*args, **kwargs)
    if armed.exists():
        os.kill(os.getpid(), int(armed.read_text()))
    return result

setattr(owner, last, dies)
from diskless_core.cli.main import main
sys.exit(main())
"""


def make_mortal(broker: BrokerProcess, path: str) -> None:
    """Have the broker, when it is started, send itself a signal after each call of an async function while it is armed.

    Args:
        path: the function, as `module:Class.method`.
    """
    command = broker.folder / "diskless-that-dies"
    command.write_text(_COMMAND.format(python=sys.executable, path=path, armed=str(_trigger(broker))))
    command.chmod(0o755)
    broker._command = command


def arm(broker: BrokerProcess, number: signal.Signals = signal.SIGKILL) -> None:
    """The next call kills it, or stops it in good order."""
    whole = _trigger(broker).with_suffix(".new")
    whole.write_text(str(int(number)))
    whole.replace(_trigger(broker))


def _trigger(broker: BrokerProcess) -> Path:
    return broker.folder / "armed"


def disarm(broker: BrokerProcess) -> None:
    """Calls do nothing to it any more."""
    _trigger(broker).unlink(missing_ok=True)
