"""What packages of contrib/ import: what an author outside this project could."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.source_files import imported_modules, python_files

AUTHOR_API = ("plugin", "log", "protocol", "remote_log", "wal", "clock")
"""Parts of the core for plugins."""

FOR_TESTS = (*AUTHOR_API, "testing", "shards")
"""And for their tests."""

MODULES = python_files("contrib")
PACKAGES = sorted({path.parts[1] for path in MODULES})


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_authors_may(package: str) -> None:
    modules = [path for path in MODULES if path.parts[1] == package]

    assert {str(path): found for path in modules if (found := forbidden(path))} == {}
    assert any(path.parts[2].startswith("diskless_") for path in modules)


@pytest.mark.parametrize("package", PACKAGES)
def test_its_tests_import_only_what_is_installed(package: str) -> None:
    tests = [path for path in MODULES if path.parts[1:3] == (package, "tests")]

    assert tests
    assert {name for path in tests for name in imported_modules(path) if name.split(".")[0] == "tests"} == set()


def forbidden(path: Path) -> set[str]:
    """What a module imports of this project and must not."""
    allowed = FOR_TESTS if path.parts[2] == "tests" else AUTHOR_API
    own = {other.parts[2] for other in MODULES if other.parts[1] == path.parts[1]}
    found = {name for name in imported_modules(path) if name.split(".")[0].startswith("diskless_")}
    return {
        name
        for name in found
        if name.split(".")[0] not in own
        and not (name == "diskless_core" or (name.startswith("diskless_core.") and name.split(".")[1] in allowed))
    }
