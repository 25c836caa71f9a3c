"""A process that appends to a coordinator log until it is killed, and says on standard output what was acknowledged.

Run by the contract suite with `python -m`; `KillableLog` says which plugin it opens.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogPlugin
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import RecordData, build
from diskless_core.shards import DISKLESS

Acknowledged = dict[ShardId, dict[int, bytes]]
"""Base offset and bytes of each batch whose append returned."""

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KillableLog:
    """How another process opens the log under test, in the same place.

    Attributes:
        module: import path of the plugin's module with the hook implementation.
        name: the backend's name in it.
        data_dir: the plugin's folder.
        settings: properties after `coordinator_log.<name>.`; values that JSON can carry.
    """

    module: str
    name: str
    data_dir: Path
    settings: dict[str, object] = field(default_factory=dict)

    def command(self, shards: int) -> list[str]:
        """The command line of a process that appends to that many shards at once."""
        settings = json.dumps(self.settings)
        return [sys.executable, "-m", __name__, self.module, self.name, str(self.data_dir), settings, str(shards)]


async def append_and_kill(target: KillableLog, lines: int, acknowledged: Acknowledged) -> None:
    """Run the appending process until it has acknowledged so many appends, kill it, and note all that it said."""
    process = await asyncio.create_subprocess_exec(*target.command(shards=3), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    said: list[bytes] = []
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while len(said) < lines:
                said.append(await process.stdout.readline())
                assert said[-1], "the appending process ended by itself"
    finally:
        process.kill()
        rest = await process.stdout.read()
        await process.wait()
    for line in (b"".join(said) + rest).splitlines(keepends=True):
        if line.endswith(b"\n"):
            index, offset, content = line.decode().split()
            acknowledged.setdefault(_shard(int(index)), {})[int(offset)] = bytes.fromhex(content)


def _shard(index: int) -> ShardId:
    return DISKLESS.shard(index)


def _open(module: str, name: str, data_dir: Path, settings: str) -> CoordinatorLog:
    descriptors: list[CoordinatorLogPlugin] = importlib.import_module(module).diskless_coordinator_logs()
    descriptor = next(found for found in descriptors if found.name == name)
    context = PluginContext(node_id=1, data_dir=data_dir, log_dir=data_dir.parent, clock=SystemClock())
    return descriptor.factory(context, descriptor.settings.model_validate(json.loads(settings)))


async def _append_for_ever(log: CoordinatorLog, shard: ShardId) -> None:
    for number in itertools.count():
        values = [f"{number}-{record}".encode() for record in range(1 + number % 3)]
        batch = build([RecordData(None, value) for value in values], timestamp_ms=0)
        for offset in await log.append(shard, [batch]):
            sys.stdout.write(f"{shard.index} {offset} {batch.hex()}\n")
            sys.stdout.flush()


async def _main(arguments: list[str]) -> None:
    module, name, data_dir, settings, shards = arguments
    log = _open(module, name, Path(data_dir), settings)
    await log.start()
    async with asyncio.TaskGroup() as group:
        for index in range(int(shards)):
            group.create_task(_append_for_ever(log, _shard(index)))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
