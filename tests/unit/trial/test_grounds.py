"""Where a trial says that it takes place."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskless_core.cli import common
from diskless_core.clock import SystemClock
from diskless_core.config.load import load_config
from diskless_core.trial.grounds import Grounds


@pytest.mark.parametrize("noun", ["offset_assignment", "gateway_placement"])
def test_a_policy_is_tried_in_memory(noun: str, tmp_path: Path) -> None:
    grounds = grounds_in(tmp_path)

    assert grounds.where(noun) == f"memory and the folder {tmp_path / grounds.name}"


def test_a_backend_without_a_place_of_its_own_is_tried_below_names_that_the_trial_draws(tmp_path: Path) -> None:
    grounds = grounds_in(tmp_path)

    assert grounds.where("coordinator_store") == (
        f"the folder {tmp_path / grounds.name}, and below names and keys that begin with {grounds.name}"
    )


def grounds_in(folder: Path) -> Grounds:
    plugins = common.discover_plugins()
    return Grounds(load_config(None, [f"log.dirs={folder}"], {}, plugins), plugins, SystemClock())
