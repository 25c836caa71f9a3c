"""What `coordinator_log=bucket` costs in requests and dollars a month, as docs/bucket_log.md shows it.

The pace of requests comes from the plugin's own settings, so that the table cannot differ from what a broker does.
"""

from __future__ import annotations

from dataclasses import dataclass

from diskless_bucket_log.bucket_log import BucketLog
from diskless_bucket_log.config import BucketLogSettings
from diskless_core.cluster.nominations import FOLLOWERS

PRICES_AS_OF = "November 2025, us-east-1"

_MONTH_S = 30 * 86_400
_WRITES_IN_A_LEASE = 4

BROKERS = (1, 10, 100)
SHARDS = (1, 16)
LINGERS_MS = (100, 250, 500, 1000)


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for a million requests. The bytes of entries, which a request also pays for, are next to nothing."""

    name: str
    put: float
    get: float


PRICES = (Prices("S3 Standard", put=5.00, get=0.40), Prices("S3 Express One Zone", put=1.13, get=0.03))


@dataclass(frozen=True, slots=True)
class Requests:
    """Millions of requests a month."""

    puts: float
    gets: float

    def dollars(self, prices: Prices) -> float:
        return self.puts * prices.put + self.gets * prices.get


def requests(brokers: int, shards: int, linger_ms: int | None) -> Requests:
    """What a cluster asks in a month.

    Args:
        shards: Diskless coordinators.
        linger_ms: between two puts of a shard that never stops writing; None if none writes anything.
    """
    settings = BucketLogSettings()
    lease_s = settings.lease_ms / 1000 / _WRITES_IN_A_LEASE
    poll_s = settings.longest_poll_s(requests_are_billed=True)
    # A put is followed by reading the log start. A leader whose appends go on has nothing to look for besides.
    entries = 0.0 if linger_ms is None else shards * 1000 / linger_ms
    # All brokers have a copy of the cluster shard, and of each other one its leader and its followers.
    copies = min(brokers, 1 + FOLLOWERS)
    looking = brokers + copies * (shards + BucketLog.group_coordinators) - (0 if linger_ms is None else shards)
    # One lease, the cluster shard's: its holder reads and writes it, the others read it.
    puts = entries + 1 / lease_s
    gets = entries + looking * 2 / poll_s + brokers / lease_s
    return Requests(puts=puts * _MONTH_S / 1e6, gets=gets * _MONTH_S / 1e6)


def table() -> str:
    """The table of docs/bucket_log.md, in Markdown."""
    paces = [None, *reversed(LINGERS_MS)]
    titles = ["nothing written", *(f"every {linger_ms:,} ms" for linger_ms in reversed(LINGERS_MS))]
    lines = [
        "| Brokers | Shards | | " + " | ".join(titles) + " |",
        "|" + "---|" * 3 + "---:|" * len(titles),
    ]
    for brokers in BROKERS:
        for shards in SHARDS:
            asked = [requests(brokers, shards, pace) for pace in paces]
            cells = [f"{each.puts:,.1f} / {each.gets:,.1f}" for each in asked]
            lines.append(f"| {brokers} | {shards} | million PUT / GET | " + " | ".join(cells) + " |")
            for prices in PRICES:
                dollars = [f"${each.dollars(prices):,.0f}" for each in asked]
                lines.append(f"| | | {prices.name} | " + " | ".join(dollars) + " |")
    return "\n".join(lines)


_BEGIN, _END = "<!-- the table of costs, by docs_site -->\n", "<!-- end of the table of costs -->"


def with_table(page: str) -> str:
    """A page with the table between its marks."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not after:
        raise ValueError("the page has no marks for the table of costs")
    return f"{before}{_BEGIN}\n{table()}\n\nPrices: {PRICES_AS_OF}.\n\n{_END}{after}"
