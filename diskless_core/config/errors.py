"""What is wrong with a configuration: every problem of it at once, none with the value of a secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """One mistake.

    Attributes:
        key: the property, or what was found where a property should be.
        value: what it was set to; None where it is not set, secret, or of an unknown property (a misspelt secret).
        message: what is wrong and what to do.
        suggestion: the nearest valid name, if one is near.
        source: where it was set: `server.properties:12`, `DISKLESS_CONFIG_NODE_ID`, `--override`, or `default`
            where it is not set; `configuration` for settings that do not fit together.
    """

    key: str
    value: str | None = None
    message: str
    suggestion: str | None = None
    source: str

    def __str__(self) -> str:
        setting = self.key if self.value is None else f"{self.key}={self.value}"
        hint = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        return f"{self.source}: {setting}: {self.message}{hint}"


class ConfigError(Exception):
    """The configuration can't be used. `problems` holds all that is wrong with it, in the order in which it is read."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
