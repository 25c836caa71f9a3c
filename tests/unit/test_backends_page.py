"""The page of all backends: each that ships has a row, whether it could be measured or not."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from diskless_core.plugin.command_groups import COMMAND_GROUP
from diskless_core.plugin_host.discovery import ENTRY_POINT_GROUP
from docs_site import backends
from docs_site.backends import BACKENDS, SHOWN, Backend, Figures, Run
from tests.benchmarks.backends import GROUPS, Group, measure_group

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT / "pyproject.toml", ROOT / "spark/pyproject.toml", *sorted(ROOT.glob("contrib/*/pyproject.toml"))]
NOTHING = Run(machine="a machine", date="2026-01-02", figures={})
NO_BREAK = "\N{NO-BREAK SPACE}"
LOG = Backend(noun="coordinator_log", name="local", durability="a disk", cost="no request", needs="one broker")
MEASURES = {
    "append, 1 pending, p50 ms": 0.012,
    "append, 1 pending, p99 ms": 12.34,
    "append, 1,000 pending, p50 ms": 5.0,
    "append, 1,000 pending, p99 ms": 1500.0,
    "appends/s, 1 pending": 801.7,
    "entries/s, 1,000 pending": 123456.0,
}
MEASURED = Figures(measures=MEASURES, memory_mib=23.4)


def rows_of(page: str) -> list[str]:
    """The lines of tables that are about a backend."""
    return re.findall(r"^\| `.*\|$", page, re.M)


def test_every_backend_that_ships_has_a_row() -> None:
    shipped = {
        key
        for project in PROJECTS
        for key in tomllib.loads(project.read_text())["project"]["entry-points"][ENTRY_POINT_GROUP]
        if not key.startswith(f"{COMMAND_GROUP}.")
    }
    assert {f"{one.noun}.{one.name}" for one in BACKENDS} == shipped
    assert len(rows_of(backends.render(NOTHING))) == len(BACKENDS)


def test_the_benchmark_measures_every_row_that_does_not_name_another_page() -> None:
    measured = Counter(key for group in GROUPS for key in group.rows)
    assert measured == Counter(one.key for one in BACKENDS if not one.elsewhere)


def test_a_server_that_cannot_be_had_leaves_its_rows_with_the_reason(tmp_path: Path) -> None:
    def serve(_: Path) -> NoReturn:
        raise FileNotFoundError("some lines\nthere is no java")

    kafka = next(group for group in GROUPS if "coordinator_log.kafka" in group.rows)
    found = dict(measure_group(Group(serve, kafka.rows), tmp_path / "kafka", {}, 0.1))
    assert {key: one.missing for key, one in found.items()} == dict.fromkeys(kafka.rows, "there is no java")


def test_every_row_of_the_last_run_is_on_the_page() -> None:
    assert set(backends.read().figures) <= {one.key for one in BACKENDS}


def test_a_row_has_the_words_and_the_figures() -> None:
    page = backends.render(replace(NOTHING, figures={LOG.key: MEASURED}), [LOG])
    [row] = rows_of(page.replace(NO_BREAK, " "))
    assert row == (
        "| `local` | a disk | no request | 1 pending: 12 µs / 12 ms <br> 1,000 pending: 5.0 ms / 1.5 s "
        "| 1 pending: 802/s <br> 1,000 pending: 123,456/s | 23 MiB | one broker |"
    )
    assert "> a machine; 2026-01-02" in page
    assert "12 µs / 12 ms".replace(" ", NO_BREAK) in page, "a figure is not torn apart at a line's end"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "not measured yet"),
        (
            {LOG.key: Figures(measures={}, memory_mib=0, missing="no server:\n a | b")},
            "not measured: no server: a \\| b",
        ),
    ],
)
def test_a_backend_that_could_not_be_measured_keeps_its_row_and_says_why(found: dict[str, Figures], said: str) -> None:
    [row] = rows_of(backends.render(replace(NOTHING, figures=found), [LOG]))
    assert row == f"| `local` | a disk | no request | {said} | - | - | one broker |"


def test_rows_of_one_backend_are_told_apart_by_their_place() -> None:
    assert len({one.key for one in BACKENDS}) == len(BACKENDS)
    place = replace(LOG, place="files")
    assert rows_of(backends.render(NOTHING, [place]))[0].startswith("| `local`, files |")


def test_every_noun_with_a_row_says_how_it_was_measured() -> None:
    assert {one.noun for one in BACKENDS} == set(SHOWN)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = replace(NOTHING, figures={LOG.key: MEASURED, "other": Figures(measures={}, memory_mib=0, missing="why")})
    backends.write(run, tmp_path / "figures.json")
    assert backends.read(tmp_path / "figures.json") == run


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (0.0123, "0.012"), (1.25, "1.2"), (99.6, "100"), (4321, "4,321")]
)
def test_a_number_has_two_digits_that_count(value: float, said: str) -> None:
    assert backends.number(value) == said
