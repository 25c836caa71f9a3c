"""Charts show the figures of docs/benchmarks.md and no others."""

from __future__ import annotations

import re

import pytest

from docs_site import charts
from tests.support.site import ROOT

PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
CHARTS = {chart.name: chart for chart in charts.charts(PAGE)}


def test_every_chart_has_figures():
    assert {"throughput", "cpu", "small-requests", "start", "memory", "latency", "commits", "lookups"} <= set(CHARTS)
    assert {"compaction", "spark"} <= set(CHARTS)


@pytest.mark.parametrize("name", CHARTS)
def test_every_figure_of_a_chart_stands_on_the_page_of_benchmarks(name):
    shown = re.findall(r"[\d.,]*\d", " ".join(bar.figure for group in CHARTS[name].groups for bar in group.bars))

    assert set(shown) <= set(re.findall(r"[\d.,]*\d", PAGE))


def test_bars_are_as_long_as_their_figures_say():
    [chart] = charts.charts("| librdkafka producer | 1,200 MB/s | 300 MB/s | 0.5 MB/s |\n")

    assert [bar.value for bar in chart.groups[0].bars] == [1200, 300, 0.5]
    lengths = [float(width) for width in re.findall(r'class="bar-\w+" x="4" y="[3-9]\d" width="([\d.]+)"', draw(chart))]
    assert lengths[0] == pytest.approx(4 * lengths[1], abs=0.5)


def draw(chart):
    return charts.draw(chart).render()


def test_what_was_not_measured_has_no_chart():
    without_kafka = "\n".join(line for line in PAGE.splitlines() if line.count("|") != 5)

    assert {chart.name for chart in charts.charts(without_kafka)} == set(CHARTS) - {
        "throughput",
        "cpu",
        "cpu-many-partitions",
        "small-requests",
        "start",
        "memory",
    }


def test_a_drawing_says_in_words_what_it_shows():
    chart = CHARTS["throughput"]

    assert f"<desc>{chart.title} ({', '.join(chart.legend)}). librdkafka producer: " in draw(chart)
