"""The benchmarks, which no test runs, at least fit the code that they measure as far as an import tells."""

import importlib

import pytest

from tests.architecture.source_files import ROOT

MODULES = sorted(path.stem for path in (ROOT / "tests" / "benchmarks").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"tests.benchmarks.{name}")
