"""Whose the objects below a prefix are. Two clusters on one prefix would take each other's objects for orphans.

An object beside them names the cluster. It is looked at before a broker serves anybody, and put by the first one.
"""

from __future__ import annotations

from diskless_core.broker.errors import StartError
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore

_NAME = "cluster"
_LIMIT_BYTES = 256

_ADVICE = (
    "Nothing was changed. If this broker is to be one of that cluster, give it that cluster's coordinator_log, with "
    "its settings; if that log was lost, bring it back. If it is to be another cluster, give it a place of its own, by "
    "another diskless.wal.object.prefix or another place of the wal_object_store"
)


class ObjectOwner:
    """The cluster whose objects are below `prefix`, as what lies `beside` says.

    Where only this process sees the objects, nothing can be mixed up and nothing is looked at.
    """

    def __init__(self, objects: WalObjectStore, *, prefix: str, beside: str) -> None:
        self._objects = objects
        self._prefix = prefix
        self._beside = beside
        self._key = f"{beside}/{_NAME}"

    async def require_nobody(self) -> None:
        """For a cluster whose log is empty.

        Raises:
            StartError: there are objects, of another cluster or of one that has lost its log.
            WalObjectStoreError: it cannot be found out.
        """
        if self._objects.is_process_local:
            return
        owner = await self._read()
        if owner is not None or await self._is_anything_there():
            raise self._strangers(owner)

    async def require(self, cluster_id: str, *, has_topics: bool) -> None:
        """For a cluster that has got its id. What it finds in nobody's hands is this cluster's from now on.

        Raises:
            StartError: the objects are another cluster's, or those of this cluster are elsewhere.
            WalObjectStoreError: it cannot be found out.
        """
        if self._objects.is_process_local:
            return
        owner = await self._read()
        if owner is None and has_topics:
            raise StartError(
                f"the log is that of the cluster {cluster_id}, which has topics, and no object {self._key} says that "
                f"its objects are here. Nothing was changed. Set diskless.wal.object.prefix, and the place of the "
                f"wal_object_store, to what they were; or copy what is below {self._prefix}/ and {self._beside}/ first"
            )
        if owner is None and await self._is_anything_there():
            owner = await self._read()  # another broker of this cluster may have begun meanwhile
            if owner is None:
                raise self._strangers(owner)
        if owner is None:
            await self._objects.put(self._key, cluster_id.encode())
        elif owner != cluster_id:
            raise StartError(
                f"the objects below {self._prefix}/ are those of the cluster {owner}, and the log is that of the "
                f"cluster {cluster_id}. {_ADVICE}"
            )

    def _strangers(self, owner: str | None) -> StartError:
        return StartError(
            f"the log knows of no objects, and below {self._prefix}/ there are the objects of "
            f"{'a cluster' if owner is None else f'the cluster {owner}'} whose log is not here. {_ADVICE}. To "
            f"give up all records of that cluster and begin anew, stop its brokers and delete what is below "
            f"{self._prefix}/ and {self._beside}/"
        )

    async def _read(self) -> str | None:
        try:
            return bytes(await self._objects.get(self._key, 0, _LIMIT_BYTES)).decode("utf-8", "replace")
        except ObjectNotFoundError:
            return None

    async def _is_anything_there(self) -> bool:
        async for page in self._objects.list(f"{self._prefix}/"):
            if page:
                return True
        return False
