"""The drawings of `docs/images`: what Diskless is, the way of a record, and what lies where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from docs_site.svg import Drawing, Point

_LANES = {"client": 90.0, "broker": 315.0, "store": 560.0, "log": 770.0}
_LANE_NAMES = {
    "client": ("Client", "producer, consumer"),
    "broker": ("Broker", "gathers, caches"),
    "store": ("Object store", "wal_object_store"),
    "log": ("Coordinator", "in the broker"),
}
_Lane = Literal["client", "broker", "store", "log"]


def overview() -> Drawing:
    """What Diskless is, on the first page."""
    drawing = Drawing(
        640,
        290,
        "Kafka clients speak Kafka's protocol with a Diskless broker. The broker puts records into an object store and "
        "commits their order to a metadata log. Spark reads records straight from the object store.",
    )
    clients, broker, store = (10.0, 20.0), (230.0, 20.0), (450.0, 20.0)
    drawing.named_box("client", clients, (140, 100), "Kafka clients", "Java, Python,", "Node.js, C, …", text_size=17)
    drawing.named_box("broker", broker, (140, 100), "Diskless", "one process", text_size=17)
    drawing.named_box("store", store, (180, 100), "Object store", "the records", "a bucket, a folder", text_size=17)
    drawing.named_box("log", (195, 190), (210, 90), "Metadata log", "order, offsets, groups", "a disk", text_size=17)
    drawing.named_box("client", (430, 200), (200, 70), "Spark", "topics, DataFrames", text_size=17)
    _both_ways(drawing, (150, 70), (230, 70))
    _both_ways(drawing, (370, 70), (450, 70))
    drawing.write((190, 55), "Kafka's", size=14, style="soft", anchor="middle")
    drawing.write((190, 96), "protocol", size=14, style="soft", anchor="middle")
    drawing.write((410, 55), "put, get", size=14, style="soft", anchor="middle")
    drawing.arrow([(300, 120), (300, 190)])
    drawing.write((310, 160), "commit", size=14, style="soft")
    drawing.arrow([(540, 120), (540, 200)])
    drawing.write((550, 165), "direct", size=14, style="soft")
    return drawing


def way_of_a_record() -> Drawing:
    """Produce and Fetch, step by step, from top to bottom."""
    drawing = Drawing(
        860,
        700,
        "A producer's batch is checked and gathered by the broker, put into one WAL object, and committed by the "
        "coordinator in one log entry; then the producer gets its offset. A consumer's Fetch asks which runs hold an "
        "offset, reads them by range unless they are cached, and gets batches with their offsets.",
        least_width=700,
    )
    for lane, x in _LANES.items():
        drawing.line([(x, 66), (x, 690)], dashed=True)
        drawing.named_box(lane, (x - 80, 10), (160, 56), *_LANE_NAMES[lane], text_size=15)
    step = _Steps(drawing)
    step.message("client", "broker", 105, "Produce")
    step.note("broker", 125, "check header and CRC", "gather batches of all partitions", "until full, late, or idle")
    step.message("broker", "store", 225, "put: one WAL object")
    step.message("store", "broker", 260, "stored", answer=True)
    step.message("broker", "log", 300, "CommitFile: what is where")
    step.note("log", 318, "check against state", "one log entry, atomic", "fsync, read back, apply")
    step.message("log", "broker", 415, "offset of each batch", answer=True)
    step.message("broker", "client", 450, "base offset: it is durable", answer=True)
    drawing.line([(10, 480), (850, 480)])
    step.message("client", "broker", 520, "Fetch from offset n")
    step.message("broker", "log", 555, "which runs hold n?")
    step.message("log", "broker", 590, "runs of batches", answer=True)
    step.message("broker", "store", 625, "ranged get, unless cached")
    step.message("broker", "client", 665, "batches, offsets patched", answer=True)
    return drawing


def what_lies_where() -> Drawing:
    """Disk, object store and remote storage, and what a loss costs."""
    drawing = Drawing(
        860,
        430,
        "On the disk of the broker lie the metadata log, which is the truth, and the state store, which is made from "
        "it. In the object store lie WAL objects with the newest records, and snapshots of the state. In remote "
        "storage lie the segments into which compaction has turned older records.",
        least_width=700,
    )
    rooms = (
        (10.0, "Disk of the broker", "log.dirs"),
        (305.0, "Object store", "wal_object_store"),
        (600.0, "Remote storage", "remote_storage"),
    )
    for x, title, name in rooms:
        drawing.box("paper", (x, 10), (250, 410), radius=10)
        drawing.write((x + 125, 38), title, size=16, style="strong", anchor="middle")
        drawing.write((x + 125, 58), name, size=13, style="soft", anchor="middle")
    drawing.named_box("log", (25, 80), (220, 100), "Metadata log", "order, offsets, groups", "Lost: nothing is found.")
    drawing.named_box("log", (25, 300), (220, 100), "State store", "made from the log", "Lost: it is made again.")
    drawing.arrow([(135, 180), (135, 300)])
    drawing.write((145, 244), "replay", size=13, style="soft")
    drawing.named_box("store", (320, 80), (220, 76), "WAL objects", "newest records, many", "partitions in each")
    _wal_object(drawing, (320, 164))
    drawing.named_box("store", (320, 300), (220, 100), "Snapshots", "the state, so that the", "log can be pruned")
    drawing.arrow([(245, 350), (320, 350)])
    drawing.named_box("store", (615, 80), (220, 100), "Segments", "older records, one topic", "partition in each")
    drawing.arrow([(540, 118), (615, 118)])
    drawing.write((577, 140), "compact", size=12, style="soft", anchor="middle")
    remarks = ("Kafka's own format.", "Topics that are compacted", "have their older records here.")
    for number, remark in enumerate((*remarks, "", "Without a URL it is", "a folder in log.dirs.")):
        drawing.write((725, 215 + 19 * number), remark, size=13, style="soft", anchor="middle")
    return drawing


def _wal_object(drawing: Drawing, at: Point) -> None:
    """One object from the inside."""
    x, y = at
    drawing.box("client", (x, y), (220, 74))
    for number, name in enumerate(("orders-0", "orders-3", "pay-1")):
        drawing.box("store", (x + 6 + number * 56, y + 8), (54, 34), radius=3)
        drawing.write((x + 33 + number * 56, y + 29), name, size=11, anchor="middle")
    drawing.box("log", (x + 174, y + 8), (40, 34), radius=3)
    drawing.write((x + 194, y + 29), "index", size=11, anchor="middle")
    drawing.write((x + 110, y + 61), "batches by partition, index last", size=12, style="soft", anchor="middle")


def _both_ways(drawing: Drawing, one: Point, other: Point) -> None:
    drawing.arrow([one, other])
    drawing.arrow([other, one])


class _Steps:
    """Messages between lanes, and what is done in a lane."""

    def __init__(self, drawing: Drawing) -> None:
        self._drawing = drawing

    def message(self, sender: _Lane, receiver: _Lane, y: float, text: str, *, answer: bool = False) -> None:
        start, end = _LANES[sender], _LANES[receiver]
        self._drawing.arrow([(start, y), (end, y)], dashed=answer)
        left, right = min(start, end), max(start, end)
        middle = (left + min(right, left + 245)) / 2
        self._drawing.write((middle, y - 7), text, size=13, anchor="middle")

    def note(self, lane: _Lane, y: float, *lines: str) -> None:
        x, height = _LANES[lane], 14 + 19 * len(lines)
        wide = 230 if lane == "broker" else 170
        self._drawing.box(lane, (x - wide / 2, y), (wide, height), radius=4)
        for number, line in enumerate(lines):
            self._drawing.write((x, y + 22 + 19 * number), line, size=13, anchor="middle")


DRAWINGS: Mapping[str, Callable[[], Drawing]] = {
    "overview.svg": overview,
    "way-of-a-record.svg": way_of_a_record,
    "what-lies-where.svg": what_lies_where,
}
"""By their files in docs/images."""
