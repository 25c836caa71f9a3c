"""`diskless log`: whether the segments of the local coordinator log are whole, and what to do if they are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from tabulate import tabulate

from diskless_core.plugin.command_groups import CommandHost
from diskless_core.plugin.folders import FolderInUseError, FolderLock
from diskless_core.plugin.shard import ShardId, parse_shard_id
from diskless_local_log.recovery import shard_folders
from diskless_local_log.repair import Damage, Examined, cut, examine, flip_back

app = typer.Typer(
    help="Check the local coordinator log, and repair it while its broker is stopped.",
    no_args_is_help=True,
    add_completion=False,
)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Properties file of the broker. Without one, its defaults."),
]
OverrideOption = Annotated[
    list[str] | None, typer.Option("--override", "-o", metavar="KEY=VALUE", help="Set one property of it.")
]


@app.command()
def verify(
    context: typer.Context,
    config: ConfigOption = None,
    override: OverrideOption = None,
) -> None:
    """Read the log of each shard through, and say whether it is whole. Ends with 1 if one is damaged.

    Nothing is changed. A running broker is not disturbed; what it is just appending shows as an interrupted write.
    """
    folder = _folder(context, config, override)
    with _files_of(folder):
        examined = [found for shard, _ in shard_folders(folder) if (found := examine(folder, shard)) is not None]
    rows = [
        {"shard": str(found.shard), "start": found.start, "end": found.end, "result": _result(found)}
        for found in examined
    ]
    typer.echo(tabulate(rows, headers="keys", disable_numparse=True))
    if any(found.damage is not None for found in examined):
        _fail("a shard is damaged: `diskless log repair SHARD` says what can be done, and what that gives up")


@app.command()
def repair(
    context: typer.Context,
    shard: Annotated[str, typer.Argument(help="The shard, such as diskless-0 or __diskless_metadata-0.")],
    flip_bit: Annotated[
        bool, typer.Option("--flip-back", help="Correct the bit that is wrong, where a single one is. Loses nothing.")
    ] = False,
    cut_off: Annotated[
        bool, typer.Option("--cut", help="End the log where it is damaged. What follows is given up.")
    ] = False,
    config: ConfigOption = None,
    override: OverrideOption = None,
) -> None:
    """Say what is damaged in the log of a shard, and what each way to repair it gives up. Nothing is changed without an
    option that says so, nor while a broker runs. Ends with 1 if damage is left.
    """
    folder = _folder(context, config, override)
    found = _shard(context, folder, shard)
    with _files_of(folder), _locked(folder, is_needed=flip_bit or cut_off):
        examined = examine(folder, found)
        if examined is None or examined.damage is None:
            typer.echo(f"{found} needs no repair: {'no segments' if examined is None else _result(examined)}")
            return
        damage = examined.damage
        for line in _told(found, damage):
            typer.echo(line)
        if flip_bit:
            _flip(found, damage)
        elif cut_off:
            removed = cut(folder, found, damage)
            typer.echo(f"The log of {found} ends at offset {damage.offset} now. What was cut off is in {removed}")
        else:
            _fail("Nothing was changed.")
        left = examine(folder, found)
    if left is not None and left.damage is not None:
        _fail(f"{found} is damaged in another place too: run the command again")


def _told(shard: ShardId, damage: Damage) -> Iterator[str]:
    yield f"{damage.path} is damaged: {damage.problem}."
    if damage.flipped is not None:
        yield (
            f"A single bit is wrong: in byte {damage.flipped.position}, the one of value {damage.flipped.mask}. "
            f"`diskless log repair {shard} --flip-back` corrects it and gives up nothing."
        )
    yield "An intact copy of the file, from a backup of the disk, gives up nothing either."
    if damage.end > damage.offset:
        lost = f"the entries of {shard} from offset {damage.offset} to {damage.end - 1}"
    else:
        lost = f"the entry of {shard} at offset {damage.offset}, if there was one"
    yield (
        f"`diskless log repair {shard} --cut` gives up {lost}: {damage.cut_bytes} bytes, of which it keeps a copy. "
        f"They were acknowledged. If the coordinator store or a snapshot has applied them, the broker does not start "
        f"until those are deleted too, and what only they knew is lost."
    )


def _flip(shard: ShardId, damage: Damage) -> None:
    if damage.flipped is None:
        _fail("More than a single bit is wrong there. Nothing was changed.")
    flip_back(damage.flipped, damage.path)
    typer.echo(f"The bit is corrected: the log of {shard} has lost nothing there")


def _result(found: Examined) -> str:
    if found.damage is not None:
        return f"damaged: {found.damage.problem}"
    if found.torn_bytes:
        return f"ok; the next start cuts {found.torn_bytes} bytes of an interrupted write"
    return "ok"


def _folder(context: typer.Context, config: Path | None, override: Sequence[str] | None) -> Path:
    selected = _host(context).backend("coordinator_log", config, override or [])
    if selected.name != "local":
        _fail(f"the coordinator_log of this configuration is {selected.name}; `diskless log` is for local")
    folder = selected.context.data_dir
    if not folder.is_dir():
        _fail(f"there is no log in {folder}: name the broker's configuration with --config, or start it once")
    return folder


def _shard(context: typer.Context, folder: Path, text: str) -> ShardId:
    shard = parse_shard_id(_host(context).shard_name(text))
    shards = [found for found, _ in shard_folders(folder)]
    if shard is None or shard not in shards:
        _fail(f"there is no shard {text!r}; there are {', '.join(map(str, shards))}")
    return shard


def _host(context: typer.Context) -> CommandHost:
    host = context.find_object(CommandHost)
    if host is None:
        raise RuntimeError("a host of commands calls them with a CommandHost as the context's object")
    return host


@contextmanager
def _locked(folder: Path, *, is_needed: bool) -> Iterator[None]:
    lock = FolderLock(folder)
    try:
        if is_needed:
            lock.acquire()
        yield
    except FolderInUseError as error:
        _fail(str(error))
    finally:
        lock.release()


@contextmanager
def _files_of(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _fail(f"the log in {folder} can't be read or changed: {error}")


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)
