"""The price list that comes with Diskless, and those of files."""

from __future__ import annotations

import tomllib
from importlib import resources

from diskless_core.cluster.costs import Prices, prices_of


def built_in() -> Prices:
    """Public list prices; `Prices.as_of` says of when."""
    return parsed(resources.files("diskless_core.cluster").joinpath("prices.toml").read_text("utf-8"))


def parsed(text: str) -> Prices:
    """A price list in TOML.

    Raises:
        ValueError: it is no TOML, or lacks a price.
    """
    return prices_of(tomllib.loads(text))
