"""The examples of docs/plugins pass the contract suites that the same pages tell authors to run."""

from __future__ import annotations

from diskless_core.plugin_host.nouns import NOUNS
from tests.unit.plugin.documented import example

for noun in NOUNS.values():
    (suite,) = (found for name, found in vars(example(noun.name)).items() if name.startswith("Test"))
    globals()[f"Test{noun.interface.__name__}Example"] = suite
