"""The build hook that puts the compiled walk of records into a wheel, if the build asks for it.

    HATCH_BUILD_HOOKS_ENABLE=1 python -m pip wheel --no-deps .

Such a wheel is for one platform and one version of Python, and needs a C compiler to build. mypyc compiles the module
as it is; Python then imports the extension instead of the source, which stays beside it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("diskless_core/protocol/record_walk.py")

# The module is compiled without its package, so that one file comes out, whose name is all that Python imports it by.
_SETUP = """
from mypyc.build import mypycify
from setuptools import setup

setup(name="record_walk", ext_modules=mypycify(["--config-file=", "record_walk.py"], opt_level="3", debug_level="0"))
"""


def compile_walk(source: Path, into: Path) -> Path:
    """Compile the module into this folder, and return the file.

    Raises:
        RuntimeError: the compiler failed, with what it wrote.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(source, folder)
        Path(folder, "setup.py").write_text(_SETUP)
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(into.absolute())]
        done = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{source} could not be compiled:\n{done.stdout}{done.stderr}")
    [built] = into.glob(f"{source.stem}.*")
    return built


class CompiledWalk(BuildHookInterface[Any]):
    """Adds the extension to a wheel. A development install runs from the source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        self._folder = tempfile.TemporaryDirectory()
        built = compile_walk(Path(self.root, SOURCE), Path(self._folder.name))
        build_data["force_include"][str(built)] = str(SOURCE.with_name(built.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if version == "standard":
            self._folder.cleanup()
