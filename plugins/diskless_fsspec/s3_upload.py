"""S3's multipart uploads."""

from __future__ import annotations

from typing import Any

from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_fsspec.bucket_store import BucketStore
from diskless_fsspec.errors import response_code
from diskless_fsspec.object_upload import ObjectUpload

CHECKSUM = "CRC32"
"""Over each part: what clients compute and services check by default."""


class S3Upload(ObjectUpload):
    """An object in parts of at least 5 MiB, but for the last one, and at most 10,000 of them."""

    sent_at_once = 4

    def __init__(self, store: BucketStore, key: str) -> None:
        super().__init__(store.attempt, f"cannot write {key!r}")
        self._store = store
        self._upload = {"Bucket": store.bucket, "Key": store.name(key)}
        self._sent: dict[int, dict[str, Any]] = {}
        self._keeps_checksums = False

    async def begin(self) -> None:
        # The client sends a checksum with each part. Some services complete an upload only if it was announced, others
        # know of none: those do not repeat it here.
        beginning = self._call("create_multipart_upload", ChecksumAlgorithm=CHECKSUM)
        answer = await self._store.attempt(self.doing, beginning)
        self._upload["UploadId"] = answer["UploadId"]
        self._keeps_checksums = "ChecksumAlgorithm" in answer

    async def send(self, number: int, position: int, part: memoryview) -> None:  # noqa: ARG002 - numbers are enough
        answer = await self.ask(self._call("upload_part", PartNumber=number + 1, Body=bytes(part)))
        said = {name: value for name, value in answer.items() if self._identifies_part(name)}
        self._sent[number + 1] = {"PartNumber": number + 1, **said}

    def _identifies_part(self, name: str) -> bool:
        """A server that checks the sum of a part, but keeps none for the upload, finds no part that has one."""
        return name == "ETag" or (self._keeps_checksums and name.startswith("Checksum"))

    async def finish(self, number: int, position: int, part: memoryview) -> None:
        await self.send(number, position, part)
        parts = [self._sent[sent] for sent in sorted(self._sent)]
        await self.ask(self._call("complete_multipart_upload", MultipartUpload={"Parts": parts}))

    async def abort(self) -> None:
        await abort_upload(self._store, self.doing, self._upload)

    async def _call(self, operation: str, **arguments: Any) -> Any:
        return await self._store.call("call_s3", operation, **self._upload, **arguments)


async def forget_uploads(store: BucketStore, key: str) -> None:
    """Abort all uploads of an object: their parts would be kept, and paid for, until somebody does."""
    name, doing = store.name(key), f"cannot clear away unfinished uploads of {key!r}"
    listing = store.call("call_s3", "list_multipart_uploads", Bucket=store.bucket, Prefix=name)
    for found in (await store.attempt(doing, listing)).get("Uploads", ()):
        if found["Key"] == name:
            upload = {"Bucket": store.bucket, "Key": name, "UploadId": found["UploadId"]}
            await abort_upload(store, doing, upload)


async def abort_upload(store: BucketStore, doing: str, upload: dict[str, str]) -> None:
    """Abort an upload, which may be gone already."""
    try:
        await store.attempt(doing, store.call("call_s3", "abort_multipart_upload", **upload))
    except WalObjectStoreError as error:
        if not isinstance(error.__cause__, Exception) or response_code(error.__cause__) != "NoSuchUpload":
            raise
