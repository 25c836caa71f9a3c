"""`diskless store`: looks into the coordinator stores in SQLite, beside a running broker or without one.

Databases are opened for reading only, nothing is left beside them, and the answers are those of one moment.
"""

from __future__ import annotations

import csv
import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NoReturn

import sqlite_utils
import typer
from tabulate import tabulate

from diskless_core.plugin.command_groups import CommandHost

app = typer.Typer(
    help="Look into the coordinator stores in SQLite, for reading only.", no_args_is_help=True, add_completion=False
)


class Format(Enum):
    """How rows are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Properties file of the broker. Without one, its defaults."),
]
OverrideOption = Annotated[
    list[str] | None, typer.Option("--override", "-o", metavar="KEY=VALUE", help="Set one property of it.")
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="How rows are written.")]
ShardArgument = Annotated[
    str, typer.Argument(help="The shard, such as diskless-0 or __diskless_metadata-0, or a database file.")
]

_BUSY_S = 5.0
_TABLE_ROWS = 1000
"""A table is laid out in memory, when all of its rows are there."""


@app.command()
def tables(
    context: typer.Context,
    shard: Annotated[str | None, typer.Argument(help="One shard; by default all.")] = None,
    format_: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    override: OverrideOption = None,
) -> None:
    """List the tables of the shards with their rows, and the offset of the log up to which they hold everything."""
    rows = []
    for name, path in _chosen(context, shard, config, override):
        with _opened(path) as database:
            applied = _applied_offset(database)
            rows += [
                {"shard": name, "table": table, "rows": database[table].count, "applied_offset": applied}
                for table in _tables(database)
            ]
    _write(rows, format_)


@app.command()
def rows(
    context: typer.Context,
    shard: ShardArgument,
    table: Annotated[str, typer.Argument(help="The table.")],
    where: Annotated[str | None, typer.Option(help="An SQL condition, such as 'partition = 3'.")] = None,
    order: Annotated[str | None, typer.Option(help="Columns to sort by, such as 'base_offset desc'.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many rows; 0 for all.")] = 100,
    offset: Annotated[int, typer.Option(min=0, help="How many rows to leave out before.")] = 0,
    format_: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    override: OverrideOption = None,
) -> None:
    """Write the rows of a table, by default in the order of its key."""
    with _opened(_path(context, shard, config, override)) as database:
        if table not in _tables(database):
            _fail(f"{shard} has no table {table!r}; it has {', '.join(_tables(database))}")
        found = database[table].rows_where(where, order_by=order, limit=limit + 1 if limit else -1, offset=offset)
        _write(found, format_, limit)


@app.command()
def query(
    context: typer.Context,
    shard: ShardArgument,
    sql: Annotated[str, typer.Argument(help="One SELECT.")],
    parameter: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A value for :NAME in the statement."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help=f"How many rows; 0 for all. By default {_TABLE_ROWS} in a table, all in csv and json."
        ),
    ] = None,
    format_: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    override: OverrideOption = None,
) -> None:
    """Write what an SQL query finds."""
    values = dict(_parameter(text) for text in parameter or ())
    if limit is None:
        limit = _TABLE_ROWS if format_ is Format.TABLE else 0
    with _opened(_path(context, shard, config, override)) as database:
        try:
            found = database.query(sql, values)
        except ValueError:  # it is no query, and was undone
            _fail("only a statement that finds rows can be asked, such as SELECT")
        _write(found, format_, limit)


@app.command()
def schema(
    context: typer.Context,
    shard: ShardArgument,
    table: Annotated[str | None, typer.Argument(help="One table; by default all.")] = None,
    config: ConfigOption = None,
    override: OverrideOption = None,
) -> None:
    """Write the SQL that made the tables."""
    with _opened(_path(context, shard, config, override)) as database:
        if table is not None and table not in _tables(database):
            _fail(f"{shard} has no table {table!r}; it has {', '.join(_tables(database))}")
        typer.echo(database[table].schema if table is not None else database.schema)


@app.command()
def verify(
    context: typer.Context,
    shard: Annotated[str | None, typer.Argument(help="One shard; by default all.")] = None,
    format_: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    override: OverrideOption = None,
) -> None:
    """Read the databases through, and say of each whether it is whole. Ends with 1 if one is not."""
    chosen = _chosen(context, shard, config, override)
    results = [{"shard": name, "result": _integrity(path)} for name, path in chosen]
    _write(results, format_)
    if any(result["result"] != "ok" for result in results):
        _fail(
            "a store that is damaged is made anew from the log: stop the broker and run `diskless coordinator rebuild`"
        )


# --- databases ---------------------------------------------------------------------------------------------------


def _host(context: typer.Context) -> CommandHost:
    host = context.find_object(CommandHost)
    if host is None:
        raise RuntimeError("a host of commands calls them with a CommandHost as the context's object")
    return host


def _databases(context: typer.Context, config: Path | None, override: Sequence[str] | None) -> Mapping[str, Path]:
    """The database of each shard of the configured broker, by the shard's name."""
    selected = _host(context).backend("coordinator_store", config, override or [])
    if selected.name != "sqlite":
        _fail(f"the coordinator_store of this configuration is {selected.name}; `diskless store` looks into sqlite")
    folder = selected.context.data_dir
    found = {path.stem: path for path in sorted(folder.glob("*.db"))}
    if not found:
        _fail(f"there is no store in {folder}: name the broker's configuration with --config, or start it once")
    return found


def _path(context: typer.Context, shard: str, config: Path | None, override: Sequence[str] | None) -> Path:
    if Path(shard).is_file():
        return Path(shard)
    databases = _databases(context, config, override)
    name = _host(context).shard_name(shard)
    if name not in databases:
        _fail(f"there is no shard {shard!r}; there are {', '.join(databases)}")
    return databases[name]


def _chosen(
    context: typer.Context, shard: str | None, config: Path | None, override: Sequence[str] | None
) -> list[tuple[str, Path]]:
    """One shard, or all."""
    if shard is None:
        return list(_databases(context, config, override).items())
    path = _path(context, shard, config, override)
    return [(path.stem, path)]


@contextmanager
def _opened(path: Path) -> Iterator[sqlite_utils.Database]:
    """A database at one moment. Errors of SQLite end the command with what they say."""
    try:
        with _connection(path) as connection:
            connection.execute("BEGIN")
            yield sqlite_utils.Database(connection)
    except sqlite3.Error as error:
        _fail(f"{path}: {error}")


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing: neither into the database nor, where nobody has it open, beside it.

    SQLite's own log is there while a broker has the database open, and after one that was killed. Where it is not, to
    open the database as usual would make such files and leave them, and those of another user can keep the broker from
    starting.
    """
    log = path.with_name(f"{path.name}-wal")
    is_at_rest, before = not log.exists(), path.stat().st_mtime_ns
    mode = "mode=ro&immutable=1" if is_at_rest else "mode=ro"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_S, isolation_level=None)
    try:
        # The mode refuses writes to this database; others cannot be attached.
        connection.set_authorizer(_authorize)
        yield connection
    finally:
        connection.close()
    if is_at_rest and (log.exists() or path.stat().st_mtime_ns != before):
        raise sqlite3.OperationalError("a broker has opened it meanwhile, what was read may be wrong: ask again")


def _authorize(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def _tables(database: sqlite_utils.Database) -> list[str]:
    return sorted(table for table in database.table_names() if table != "_meta")


def _applied_offset(database: sqlite_utils.Database) -> int | None:
    return next((row["applied_offset"] for row in database["_meta"].rows), None)


def _integrity(path: Path) -> str:
    try:
        with _connection(path) as connection:
            problems = [row[0] for row in connection.execute("PRAGMA integrity_check(10)")]
    except sqlite3.Error as error:
        return str(error)
    return "; ".join(problems)


# --- output ------------------------------------------------------------------------------------------------------


def _write(found: Iterable[Mapping[str, Any]], format_: Format, limit: int = 0) -> None:
    """Write rows, at most so many unless it is 0; bytes as hexadecimal digits. CSV and JSON are written row by row."""
    rest = iter(found)
    shown = islice(rest, limit) if limit else rest
    readable = ({name: _readable(value) for name, value in row.items()} for row in shown)
    if format_ is Format.JSON:
        _write_json(readable)
    elif format_ is Format.CSV:
        _write_csv(readable)
    else:
        typer.echo(tabulate(list(readable), headers="keys", missingval="-", disable_numparse=False))
    if limit and next(rest, None) is not None:
        typer.echo(f"there are more than these {limit}: --limit 0 writes all", err=True)


def _write_json(found: Iterable[Mapping[str, Any]]) -> None:
    separator = "["
    for row in found:
        typer.echo(f"{separator}{json.dumps(row)}", nl=False)
        separator = ",\n "
    typer.echo("[]" if separator == "[" else "]")


def _write_csv(found: Iterable[Mapping[str, Any]]) -> None:
    writer = csv.writer(sys.stdout)
    for number, row in enumerate(found):
        if number == 0:
            writer.writerow(row)
        writer.writerow(row.values())


def _readable(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE", param_hint="--param")
    return name, value


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)
