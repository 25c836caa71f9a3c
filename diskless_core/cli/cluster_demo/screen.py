"""What the audience sees: at a terminal a table that is always up to date, and plain lines anywhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from diskless_core.cli.cluster_demo.brokers import Fate
from diskless_core.cli.cluster_demo.watch import Sight
from diskless_core.cli.text import NONE

LINE_S = 2.0
"""Between two lines of figures where there is no terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLine:
    """One broker of the table; `pid` is None where it has no process."""

    node_id: int
    rack: str
    fate: Fate
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that is shown.

    Attributes:
        produced_s: records acknowledged a second, of late.
        consumed_s: records given to the group a second, of late.
        requests: to the bucket by HTTP method, where somebody counts all of them.
    """

    title: str
    brokers: Sequence[BrokerLine]
    sight: Sight
    acknowledged: int
    read: int
    produced_s: float
    consumed_s: float
    requests: Mapping[str, int] = field(default_factory=dict)


class Screen:
    """A context manager around the whole show."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._line_due_s = 0.0

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, at_s: float, line: str) -> None:
        """A line that stays.

        Args:
            at_s: seconds since the demo began.
        """
        self._print(at_s, Text(line, style="bold"))

    def show(self, at_s: float, picture: Picture) -> None:
        """How things stand; as a line only every now and then."""
        if self._live is not None:
            self._live.update(render(picture), refresh=True)
        elif at_s >= self._line_due_s:
            self._line_due_s = at_s + LINE_S
            self._print(at_s, Text(summary(picture)))

    def end(self, *lines: str | RenderableType) -> None:
        """Show no table any more, and what came of it all."""
        if self._live is not None:
            self._live.stop()
        for line in lines:
            self._console.print(line, highlight=False, markup=False, soft_wrap=isinstance(line, str))

    def _print(self, at_s: float, text: Text) -> None:
        self._console.print(Text(f"{at_s:5.1f} s  ", style="dim") + text, soft_wrap=True)


def render(picture: Picture) -> RenderableType:
    """The table, what is going on above it, and the figures below."""
    sight = picture.sight
    leads = sight.leads()
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name in ("broker", "rack", "process", "state", "leads", "uploads", "reads"):
        table.add_column(name, justify="right" if name in ("broker", "leads", "uploads", "reads") else "left")
    for one in picture.brokers:
        table.add_row(
            str(one.node_id),
            one.rack,
            one.fate.value if one.pid is None else f"{one.fate.value}, pid {one.pid}",
            state_of(one.node_id, sight),
            str(leads[one.node_id]),
            f"{sight.uploads.get(one.node_id, 0):,}",
            f"{sight.reads.get(one.node_id, 0):,}",
            style=None if one.fate is Fate.RUNNING else "dim",
        )
    return Group(Text(picture.title, style="bold"), table, Text(_shards(sight)), Text(summary(picture)))


def state_of(node_id: int, sight: Sight) -> str:
    """What the cluster says of a broker."""
    if node_id not in sight.registered:
        return "not registered"
    state = "live" if node_id in sight.live else "fenced"
    return f"{state}, controller" if node_id == sight.controller else state


def summary(picture: Picture) -> str:
    """The figures in one line."""
    asked = ", ".join(f"{count:,} {method}" for method, count in sorted(picture.requests.items()))
    uploads, reads = sum(picture.sight.uploads.values()), sum(picture.sight.reads.values())
    parts = [
        f"{picture.acknowledged:,} acknowledged ({picture.produced_s:,.0f}/s)",
        f"{picture.read:,} read ({picture.consumed_s:,.0f}/s)",
        f"{uploads:,} uploads and {reads:,} reads of objects",
    ]
    return "; ".join([*parts, f"bucket: {asked}"] if asked else parts)


def _shards(sight: Sight) -> str:
    leaders = (f"{shard} at {NONE if leader is None else leader}" for shard, leader in sight.leaders.items())
    return "coordinators: " + ", ".join(leaders)


def fault_table(rows: Sequence[tuple[str, float, float]]) -> Table:
    """By fault the longest silence of a producer, and of the group, in seconds."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("longest gap", no_wrap=True)
    table.add_column("of a producer", justify="right")
    table.add_column("of the group", justify="right")
    for name, producer_s, group_s in rows:
        table.add_row(name, f"{producer_s:.2f} s", f"{group_s:.2f} s")
    return table
