"""Helm's own engine, as a Python package has it, in a process of its own: it brings Go's runtime with it.

`python -m tests.support.helm CHART VALUES…` lints and renders a chart with each of these files, and writes JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

RELEASE, NAMESPACE = "orders", "kafka"
_WARNING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """What became of a chart with one file of values.

    Attributes:
        findings: of `helm lint --strict`, from warnings on.
        error: why it was refused, or None.
        notes: what an operator is told after an installation.
        manifests: what Kubernetes would get.
    """

    findings: Sequence[str]
    error: str | None
    notes: str
    manifests: Sequence[Mapping[str, Any]]

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """All manifests of a kind."""
        return [manifest for manifest in self.manifests if manifest["kind"] == kind]

    def one(self, kind: str, name: str = "") -> Any:
        """The only manifest of a kind, or the one of a name."""
        [found] = [one for one in self.of_kind(kind) if name in ("", one["metadata"]["name"])]
        return found


def render(chart: Path, values: Sequence[Path]) -> list[Rendered]:
    """Lint and render a chart as `helm template orders CHART -n kafka -f VALUES` does, once for each file."""
    command = [sys.executable, "-m", "tests.support.helm", str(chart), *map(str, values)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return [Rendered(**one) for one in json.loads(done.stdout)]


def _render(chart: Any, helm: Any, path: Path, values: Path) -> dict[str, Any]:
    wanted = yaml.safe_load(values.read_text())
    linted = helm.lint(path, wanted, strict=True, namespace=NAMESPACE)
    findings = [f"{one['path']}: {one['error']}" for one in linted["messages"] if one["severity"] >= _WARNING]
    try:
        # `helm template` checks the values before it renders; here these are two calls
        chart.validate_schema(chart.merge_values(wanted))
        rendered = chart.render(wanted, name=RELEASE, namespace=NAMESPACE)
    except helm.HelmError as error:
        return {"findings": findings, "error": str(error), "notes": "", "manifests": []}
    notes = "".join(text for name, text in rendered.items() if name.endswith("NOTES.txt"))
    texts = [text for name, text in rendered.items() if name.endswith(".yaml")]
    manifests = [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest is not None]
    return {"findings": findings, "error": None, "notes": notes, "manifests": manifests}


def _main(path: Path, values: Sequence[Path]) -> None:
    import helm_python as helm

    with helm.Chart.load(path) as chart:
        print(json.dumps([_render(chart, helm, path, one) for one in values]))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
