"""The container file, linted, and what it does done by processes: no engine that builds containers is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from tests.support.batches import batch_of, read_values
from tests.support.containers import CONTAINERFILE, DATA, PATIENT, Container, Image, Network
from tests.support.environments import PROJECT, environment_with, site_packages
from tests.support.requests import append, create_topic, fetch
from tests.support.wire import WireClient

pytestmark = pytest.mark.xdist_group("image")

SANDBOX = """
mount --bind "$interpreter" "$folder/python"
mount --bind "$dependencies" "$folder/dependencies"
mount --bind "$folder/data" "$folder/data"
mount -o remount,bind,ro /
above=$(findmnt -n -o TARGET -T "$folder")
[ "$above" = / ] || mount -o remount,bind,ro "$above"
! touch "$folder/written" 2>/dev/null
cd "$folder/data"
exec setpriv --reuid "$user" --regid "$group" --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs "$@"
"""
"""Runs a command as a container of the image does, in mounts of its own: everything is for reading but the data.
Python and what Diskless needs are mounted, since another user may not get to where they are."""


class ImageProcess(Container):
    """A container of the image that has the built wheel and no other file of the project."""

    def __init__(self, folder: Path, network: Network) -> None:
        python = environment_with(folder, [PROJECT])
        for name in ("dependencies", "python"):
            (folder / name).mkdir()
        _use_interpreter(python, folder / "python")
        (site_packages(python) / "dependencies.pth").write_text(str(folder / "dependencies"))
        (folder / "data").mkdir()
        image = Image()
        os.chown(folder / "data", *image.user)
        properties = folder / "server.properties"
        super().__init__(
            folder,
            "broker",
            [argument.replace("/etc/diskless/server.properties", str(properties)) for argument in image.command],
            {},
            network,
            python=python,
        )
        text = (PROJECT / "deploy" / "server.properties").read_text()
        properties.write_text(network.translate(text.replace(DATA, str(folder / "data")), self.host))
        user, group = image.user
        inside = {
            "folder": folder,
            "interpreter": Path(sys.base_prefix),
            "dependencies": Path(uvloop.__file__).parents[1],
            "user": user,
            "group": group,
        }
        variables = [f"{name}={value}" for name, value in inside.items()]
        sandbox = ["unshare", "--mount", "--propagation", "private", "env", *variables, "sh", "-ec", SANDBOX, "sh"]
        library = f"LD_LIBRARY_PATH={folder / 'python' / 'lib'}"
        patient = [f"{name}={value}" for name, value in PATIENT.items()]
        only = ["env", "-i", "PATH=/usr/bin", "PYTHONDONTWRITEBYTECODE=1", library, *patient]
        self._command = [*sandbox, *only, *self._command]

    @property
    def pid(self) -> int:
        """Of the broker: each program of the sandbox takes the place of the one before."""
        assert self._process is not None
        return self._process.pid


def _use_interpreter(python: Path, prefix: Path) -> None:
    """Have an environment run the Python that will be mounted at `prefix`."""
    python.unlink()
    python.symlink_to(prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    config = python.parents[1] / "pyvenv.cfg"
    config.write_text(re.sub(r"^home = .*$", f"home = {prefix / 'bin'}", config.read_text(), flags=re.M))


@pytest.fixture(scope="module")
def network() -> Network:
    """Where the image's ports are."""
    return Network({9092: ("broker", 9092)})


@pytest.fixture(scope="module")
def container(network: Network) -> Iterator[ImageProcess]:
    """One with nothing set, as `docker run --read-only` starts it."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    # another user has to get there, which tmp_path forbids
    folder = Path(tempfile.mkdtemp(prefix="diskless-image-"))
    folder.chmod(0o755)
    try:
        container = ImageProcess(folder, network)
        try:
            container.start()
            container.wait_for("/health", 200)
            yield container
        finally:
            container.end()
    finally:
        shutil.rmtree(folder)


def test_the_linter_has_nothing_to_say() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, "--failure-threshold", "info", CONTAINERFILE], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "")


def test_it_copies_only_what_is_there_and_not_ignored() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE.read_text(), re.M)
    sources = {source for line in copied for source in line.split()}
    ignore_file = CONTAINERFILE.with_name("Containerfile.dockerignore").read_text()

    assert sources == {line[1:] for line in ignore_file.splitlines() if line.startswith("!")}
    assert all((PROJECT / source).exists() for source in sources)


def test_it_builds_with_the_pip_that_everything_else_is_installed_with() -> None:
    makefile = (PROJECT / "Makefile").read_text()

    assert re.findall(r"^ARG PIP=(.*)$", CONTAINERFILE.read_text(), re.M) == re.findall(
        r"^PIP_VERSION := (.*)$", makefile, re.M
    )


def test_the_image_says_who_runs_and_how_it_is_stopped_and_what_is_kept() -> None:
    image = Image()

    assert image.user == (10001, 10001)
    assert image.one("STOPSIGNAL") == "SIGTERM"
    assert image.one("VOLUME") == DATA
    assert image.entrypoint == ["/opt/diskless/bin/diskless"]
    assert image.health_check[0] == "/opt/diskless/bin/python"


def test_a_broker_serves_clients_as_another_user_who_can_write_its_data_only(
    container: ImageProcess, network: Network, topic: str
) -> None:
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{container.pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert set(status["Uid"].split()) == {"10001"}
    assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) == 0

    host, port = network.address("localhost", 9092).split(":")
    with WireClient(host, int(port)) as wire:
        create_topic(wire, topic)
        append(wire, topic, batch_of(b"kept"))
        assert read_values(fetch(wire, topic, 0).records) == [b"kept"]


def test_the_health_check_says_that_it_is_healthy(container: ImageProcess) -> None:
    container.wait_for_check(healthy=True, told="200 ")


def test_the_health_check_tells_why_a_broker_is_not_healthy(tmp_path: Path) -> None:
    network = Network()
    network.address("s3", 7070)  # nobody listens there
    away = {
        "DISKLESS_CONFIG_LOG_DIRS": DATA,
        "DISKLESS_CONFIG_LISTENERS": "PLAINTEXT://0.0.0.0:9092",
        "DISKLESS_CONFIG_ADMIN_LISTENER": "http://0.0.0.0:9644",
        "DISKLESS_CONFIG_WAL_OBJECT_STORE_FSSPEC_URL": "s3://records/wal",
        "DISKLESS_CONFIG_WAL_OBJECT_STORE_FSSPEC_ENDPOINT_URL": "http://s3:7070",
        "DISKLESS_CONFIG_DISKLESS_STARTUP_TIMEOUT_MS": "600000",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    broker = Container(tmp_path, "broker", ["serve"], away, network)
    try:
        broker.start()
        broker.wait_for("/health/live", 200)
        broker.wait_for_check(healthy=False, told="the broker is starting")
        assert broker.stop() == 0
        broker.wait_for_check(healthy=False, told="the broker does not answer")
    finally:
        broker.end()
