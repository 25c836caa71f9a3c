"""Azurite, Microsoft's emulator of Azure Blob Storage, from npm: installed once, run on a free port of loopback."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every Azurite has, with the key that its documentation publishes."""

START_TIMEOUT_S = 120.0
_POLL_S = 0.05

_INSTALL = ("npm", "install", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def azurite_program() -> Path:
    """The script to run with `node`; the first call installs it, which takes half a minute.

    Raises:
        subprocess.CalledProcessError: npm could not; its output was printed.
        FileNotFoundError: there is no `npm` command.
    """
    cache = Path(os.environ.get("DISKLESS_AZURITE_CACHE", Path.home() / ".cache" / "diskless-azure"))
    folder = cache / f"azurite-{VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            subprocess.run([*_INSTALL, f"azurite@{VERSION}"], cwd=partial, check=True)
            partial.rename(folder)
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


class Azurite:
    """A running Azurite that keeps blobs in memory, as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    @property
    def account_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def __enter__(self) -> Azurite:
        program = azurite_program()
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "azurite.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(self.port)),
                    *("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"),
                ],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "azurite.log").read_text()
            assert time.monotonic() < deadline, "Azurite does not answer"
            time.sleep(_POLL_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=1).close()
        except urllib.error.HTTPError:
            return True  # it asks for an account
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
