"""`diskless plugins test`: what an operator is told of a backend, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.faulty_plugins import objects
from tests.support.moto_s3 import moto_s3

DISKLESS = Path(sys.executable).parent / "diskless"
LIMIT_S = 300
STORES = [plugin.name for plugin in objects.diskless_wal_object_stores()]


@dataclass
class Operator:
    """Runs the command in a folder, with the faulty plugins installed. `data` is where brokers' data would be."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        command = [DISKLESS, "plugins", *arguments, "-o", f"log.dirs={self.data}"]
        return subprocess.Popen(
            [*map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, **self.environment},
        )

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def test(self, store: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Try one of the faulty stores, with its objects in `objects`."""
        return self.run("test", store, "-o", f"wal_object_store.{store}.folder={self.folder / 'objects'}", *arguments)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    installed = tmp_path / "installed" / "faulty-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    module = objects.__name__
    entries = "".join(f"wal_object_store.{name} = {module}\n" for name in STORES)
    (installed / "entry_points.txt").write_text(f"[diskless.plugins]\n{entries}")
    folder = tmp_path / "work"
    (folder / "objects").mkdir(parents=True)
    (folder / "objects" / "of a broker").write_bytes(b"x")
    path = os.pathsep.join([str(installed.parent), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return Operator(folder, {"PYTHONPATH": path})


@pytest.fixture
def unchanged(operator: Operator) -> Iterator[None]:
    """Whatever happens, all files are afterwards as they were before."""
    before = operator.files()
    yield
    assert operator.files() == before


@pytest.mark.usefixtures("unchanged")
class TestNothingIsLeftBehind:
    def test_a_store_that_keeps_its_promises_is_said_to(self, operator: Operator) -> None:
        result = operator.test("folderstore", "--only", "a put stores")
        assert result.returncode == 0, result.stdout + result.stderr
        assert "kept: A put stores exactly the bytes given\n" in result.stdout
        assert "wal_object_store.folderstore: " in result.stdout
        assert " 0 broken" in result.stdout
        assert "All of that is removed." in result.stdout

    def test_the_broken_promise_of_a_store_that_loses_a_put_is_named(self, operator: Operator) -> None:
        result = operator.test("losesaput", "--only", "a put that returned is seen", "--json")
        report = json.loads(result.stdout)
        [broken] = report["promises"]
        assert result.returncode == 1
        assert (report["kept"], report["broken"], report["left_behind"]) == (0, 1, [])
        assert broken["promise"] == "A put that returned is seen by every reader at once"
        assert "there is no object 'seen/9'" in broken["reason"]
        assert broken["advice"].startswith("Keep no records there")

    def test_secrets_are_in_no_message(self, operator: Operator) -> None:
        for store, code in (("tellsitspassword", 1), ("cannotstart", 2)):
            result = operator.test(store, "--only", "absent object says")
            assert result.returncode == code
            assert "password" in result.stdout + result.stderr
            assert "hunter2" not in result.stdout + result.stderr

    @pytest.mark.parametrize("store", ["hangs", "blocksforever"])
    def test_a_store_that_hangs_is_reported_by_the_name_of_the_promise(self, operator: Operator, store: str) -> None:
        result = operator.test(store, "--only", "empty range", "--deadline", 3)
        assert result.returncode == 1, result.stdout + result.stderr
        assert "BROKEN: An empty range is empty" in result.stdout
        assert "What happened: it had not ended after 3 s" in result.stdout

    def test_a_store_that_blocks_when_it_starts_is_given_up(self, operator: Operator) -> None:
        result = operator.test("blocksatstart", "--deadline", 1)
        assert result.returncode == 2, result.stdout + result.stderr
        assert "wal_object_store.blocksatstart has not started and answered within 1 s" in result.stderr

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_an_interrupted_trial_cleans_up(self, operator: Operator, number: signal.Signals) -> None:
        objects = operator.folder / "objects"
        process = operator.start("test", "folderstore", "-o", f"wal_object_store.folderstore.folder={objects}")
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("kept: ")
            process.send_signal(number)
            out, err = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
        assert process.returncode == 2, err
        assert "The trial ended early: it was interrupted." in out
        assert "All of that is removed." in out

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["wal_object_store.fspec"], "did you mean fsspec?"),
            (["nothing"], "no plugin 'nothing' is installed"),
            (["fsspec"], "there are wal_object_store.fsspec and remote_storage.fsspec: say which"),
            (["coordinator_log"], "name a plugin too, such as coordinator_log.local"),
            (["folderstore"], "wal_object_store.folderstore.folder"),
            (["sqlite", "-o", "coordinator_store.sqlite.cache=1"], "coordinator_store.sqlite.cache"),
            (["wal_object_store", "folderstore", "-o", "wal_object_store.folderstore.folder=/proc/no"], "/proc/no"),
        ],
    )
    def test_what_cannot_be_tried_says_why(self, operator: Operator, arguments: list[str], said: str) -> None:
        result = operator.run("test", *arguments)
        assert result.returncode == 2, result.stdout
        assert said in result.stderr

    def test_without_the_kit_it_says_what_to_install(self, operator: Operator) -> None:
        hidden = operator.folder.parent / "installed" / "sitecustomize.py"
        hidden.write_text("import sys\nsys.modules['hypothesis'] = None\n")
        result = operator.run("test", "offset_assignment.sequential")
        assert result.returncode == 2
        assert "pip install 'diskless[testing]'" in result.stderr

    @pytest.mark.parametrize(
        ("plugin", "only"),
        [
            ("offset_assignment.sequential", ""),
            ("gateway_placement.rendezvous", "every rack"),
            ("orphan_detection.listing", "pages"),
            ("segment_compaction.inline", "exactly"),
            ("remote_log_metadata.coordinator", "deletion"),
            ("coordinator_store.sqlite", "snapshot"),
            ("coordinator_log.local", "bounds"),
            ("coordinator_log.bucket", "same offsets"),
            ("remote_storage.fsspec", "may be repeated"),
            ("wal_object_store.fsspec", "a put stores"),
        ],
    )
    def test_a_built_in_backend_keeps_its_promises(self, operator: Operator, plugin: str, only: str) -> None:
        result = operator.run("test", plugin, "--only", only)
        assert result.returncode == 0, result.stdout + result.stderr


def test_a_store_that_does_not_delete_is_told_of_with_what_stays(operator: Operator) -> None:
    result = operator.test("neverdeletes", "--only", "delete removes")
    assert result.returncode == 1
    assert "These are left behind, remove them by hand:" in result.stdout
    assert "keys that begin with diskless-trial-" in result.stdout


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., list[str]]]:
    """Gives the options that configure a bucket."""
    import boto3

    with moto_s3() as port:
        endpoint = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="test-key",
            aws_secret_access_key="test-secret",
        )
        client.create_bucket(Bucket="there")

        def options(noun: str, **changed: Any) -> list[str]:
            settings = {
                "url": "s3://there/some/place",
                "endpoint.url": endpoint,
                "region": "us-east-1",
                "key": "test-key",
                "secret": "very-secret",
                **changed,
            }
            return [part for name, value in settings.items() for part in ("-o", f"{noun}.fsspec.{name}={value}")]

        yield options
        assert client.list_objects_v2(Bucket="there")["KeyCount"] == 0
        client.close()


@pytest.mark.parametrize(
    ("noun", "only"), [("wal_object_store", "a put stores"), ("remote_storage", "may be repeated")]
)
def test_a_bucket_is_tried_and_left_empty(operator: Operator, s3: Callable[..., list[str]], noun: str, only: str):
    result = operator.run("test", f"{noun}.fsspec", *s3(noun), "--only", only)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "s3://there/some/place/diskless-trial-" in result.stdout


def test_a_bucket_that_is_absent_is_a_sentence(operator: Operator, s3: Callable[..., list[str]]) -> None:
    result = operator.run("test", "wal_object_store.fsspec", *s3("wal_object_store", url="s3://absent/x"))
    assert result.returncode == 2
    assert "absent" in result.stderr
    assert "Traceback" not in result.stderr
    assert "very-secret" not in result.stderr


@pytest.mark.usefixtures("unchanged")
class TestBench:
    @pytest.mark.parametrize(
        ("plugin", "measures"),
        [
            ("coordinator_log.bucket", {"append, 1 pending, p99 ms", "entries/s, 1,000 pending"}),
            ("coordinator_store.sqlite", {"rows of commits/s", "scans/s of 20 batches"}),
            ("wal_object_store.fsspec", {"puts of 8 MiB, MB/s", "get of 1 MiB, p50 ms"}),
            ("remote_storage.fsspec", {"copies of 16 MiB, MB/s", "fetches of 1 MiB, MB/s"}),
            ("remote_log_metadata.coordinator", {"segments noted/s", "look-ups/s"}),
            ("offset_assignment.sequential", {"calls/s"}),
            ("gateway_placement.rendezvous", {"calls/s"}),
        ],
    )
    def test_a_backend_is_measured_beside_the_default(
        self, operator: Operator, plugin: str, measures: set[str]
    ) -> None:
        result = operator.run("bench", plugin, "--seconds", 0.3, "--json")
        assert result.returncode == 0, result.stderr
        report = json.loads(result.stdout)
        _, _, name = plugin.partition(".")
        assert next(iter(report["measures"])) == name
        assert len(report["verdicts"]) == len(report["measures"]) == (2 if name in ("bucket", "rendezvous") else 1)
        for found in report["measures"].values():
            assert measures <= {one["name"] for one in found}
            assert all(one["value"] >= 0 for one in found)
        assert report["verdicts"][0].startswith(f"At 100 MB/s {plugin} would")

    def test_a_table_and_the_arithmetic_are_for_people(self, operator: Operator) -> None:
        result = operator.run("bench", "gateway_placement", "rendezvous", "--seconds", 0.3)
        assert result.returncode == 0
        assert result.stdout.split()[:2] == ["rendezvous", "kip1164"]
        assert "100 MB/s are 12 objects of 8 MiB a second" in result.stdout

    def test_what_cannot_be_used_is_a_sentence_without_secrets(self, operator: Operator) -> None:
        folder = f"wal_object_store.cannotstart.folder={operator.folder / 'objects'}"
        result = operator.run("bench", "wal_object_store.cannotstart", "-o", folder, "--seconds", 0.3)
        assert result.returncode == 2
        assert "wal_object_store.cannotstart cannot be measured: ********** is no password" in result.stderr
        assert "Traceback" not in result.stderr

    def test_an_interrupted_bench_cleans_up(self, operator: Operator) -> None:
        process = operator.start("bench", "coordinator_log.bucket", "--seconds", LIMIT_S)
        try:
            while not operator.data.exists():
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
        assert process.returncode == 2, err
        assert "interrupted; what was written is removed" in err
