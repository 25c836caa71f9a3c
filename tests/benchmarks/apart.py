"""Measures in a process of its own: a Spark that ran before would leave its JVM, and the size of its heap, behind."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

Add = Callable[[str, str], None]


def apart(add: Add, measure: Callable[[Add], None]) -> None:
    """Measure, and tell the figures in the end. `measure` is a function of a module."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        for name, value in process.submit(_figures, measure).result():
            add(name, value)


def _figures(measure: Callable[[Add], None]) -> list[tuple[str, str]]:
    figures: list[tuple[str, str]] = []
    measure(lambda name, value: figures.append((name, value)))
    return figures
