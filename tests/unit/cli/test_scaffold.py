"""`diskless plugins new`: what it refuses, and that it writes all of a project or nothing."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from diskless_core.cli.main import main
from diskless_core.cli.scaffold import writing
from diskless_core.cli.scaffold.kinds import KINDS
from diskless_core.cli.scaffold.project import Project, ScaffoldError, checked_project, render
from diskless_core.plugin.version import API_VERSION


def new(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["plugins", "new", *arguments, "--folder", str(folder)])


@pytest.mark.parametrize("noun", KINDS)
def test_a_project_is_complete(noun: str, tmp_path: Path) -> None:
    result = new(tmp_path, noun, "two_words")

    assert result.exit_code == 0, result.output
    project = tmp_path / "diskless-two-words"
    assert list(tmp_path.iterdir()) == [project]
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert described["name"] == "diskless-two-words"
    assert described["entry-points"]["diskless.plugins"] == {f"{noun}.two_words": "diskless_two_words.plugin"}
    for path in ("README.md", "LICENSE", ".gitignore", ".github/workflows/test.yml", "tests/test_two_words.py"):
        assert (project / path).stat().st_size > 0
    assert f'api_version="{API_VERSION}"' in (project / "diskless_two_words" / "plugin.py").read_text()
    assert not [path for path in project.rglob("*") if path.is_file() and "{{" in path.read_text().replace("${{", "")]


@pytest.mark.parametrize(
    ("noun", "use"),
    [
        ("coordinator_store", "diskless serve --override coordinator_store=heron"),
        ("command_group", "diskless heron --help"),
    ],
)
def test_the_next_steps_are_commands_that_can_be_copied(noun: str, use: str, tmp_path: Path) -> None:
    steps = [line.partition("#")[0].strip() for line in new(tmp_path, noun, "heron").output.splitlines()]

    assert steps[steps.index("Next:") + 2 :] == [
        "pip install --editable '.[testing]' mypy ruff",
        "pytest",
        "diskless plugins list",
        use,
    ]


@pytest.mark.parametrize("noun", KINDS)
def test_templates_are_short_enough_to_be_read(noun: str) -> None:
    files = render(Project(noun=noun, name="heron"))

    assert {path: text.count("\n") for path, text in files.items() if text.count("\n") > 190} == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("coordinator_stor", "heron"), "there is no noun 'coordinator_stor': did you mean 'coordinator_store'?"),
        (("zzz", "heron"), "there are coordinator_log, coordinator_store"),
        (("coordinator_store", "my-store"), "the name 'my-store' cannot be used"),
        (("coordinator_store", "1st"), "the name '1st' cannot be used"),
        (("coordinator_store", "../heron"), "the name '../heron' cannot be used"),
        (("coordinator_store", "heron_"), "the name 'heron_' cannot be used"),
        (("coordinator_store", "a" * 31), "30 characters at most"),
        (("coordinator_store", "import"), "is a keyword of Python"),
        (("coordinator_store", "sqlite"), "coordinator_store.sqlite is installed already"),
        (("command_group", "plugins"), "command_group.plugins is installed already"),
        (("remote_storage", "sqlite"), "there is a package diskless_sqlite already"),
        (("remote_storage", "core"), "there is a package diskless_core already"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = new(tmp_path, *arguments)

    assert result.exit_code == 1
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "diskless-heron").mkdir()
    result = new(tmp_path, "coordinator_store", "heron")

    assert result.exit_code == 1
    assert "exists already" in result.stderr
    assert list((tmp_path / "diskless-heron").iterdir()) == []


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    result = new(tmp_path / "missing", "coordinator_store", "heron")

    assert result.exit_code == 1
    assert "there is no folder" in result.stderr


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interruption_leaves_nothing(error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(made: Path, folder: Path) -> None:
        assert (made / "pyproject.toml").exists()
        raise error

    monkeypatch.setattr(writing, "_move", failing)
    with pytest.raises((ScaffoldError, KeyboardInterrupt)):
        writing.write_project(tmp_path / "diskless-heron", {"pyproject.toml": "", "a/b.py": ""})

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_somebody_makes_meanwhile_stays(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "theirs").mkdir()
    with pytest.raises(ScaffoldError, match="somebody else"):
        writing._move(tmp_path / "made", tmp_path / "theirs")
    assert (tmp_path / "made").is_dir()


def test_names_with_underscores_are_one_word_in_classes() -> None:
    project = checked_project("coordinator_store", "my_own_2")

    assert project.distribution == "diskless-my-own-2"
    assert "class MyOwn2Store(CoordinatorStore):" in render(project)["diskless_my_own_2/store.py"]
