"""The file in the data folder that has a broker's node id."""

from __future__ import annotations

import uuid
from pathlib import Path

import javaproperties
import pytest

from diskless_core.broker.errors import StartError
from diskless_core.broker.node_identity import IdentityFile, NodeIdentity

ALLOCATION = uuid.UUID(int=7)


def test_what_was_written_last_is_read_back(tmp_path: Path) -> None:
    file = IdentityFile(tmp_path)
    assert file.read() is None
    for identity in (NodeIdentity(allocation_id=ALLOCATION), NodeIdentity(allocation_id=ALLOCATION, node_id=5)):
        file.write(identity)
        assert IdentityFile(tmp_path).read() == identity
    file.forget()
    assert file.read() is None
    file.forget()


def test_it_is_a_properties_file_as_kafka_has_it(tmp_path: Path) -> None:
    IdentityFile(tmp_path).write(NodeIdentity(allocation_id=ALLOCATION, node_id=5))
    found = javaproperties.loads((tmp_path / "meta.properties").read_text())
    assert (found["version"], found["node.id"]) == ("1", "5")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"version=2\nnode.id=1\n",
        b"version=1\nnode.id=1\n",
        b"version=1\nnode.id=one\nallocation.id=00000000-0000-0000-0000-000000000007\n",
        b"version=1\nnode.id=-1\nallocation.id=00000000-0000-0000-0000-000000000007\n",
        b"version=1\nnode.id=1\nallocation.id=7\n",
    ],
)
def test_a_damaged_file_is_refused_and_the_operator_is_told_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(StartError, match="Mend it, or delete it"):
        IdentityFile(tmp_path).read()


def test_a_folder_that_can_not_be_written_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot be written"):
        IdentityFile(tmp_path / "absent").write(NodeIdentity(allocation_id=ALLOCATION))
