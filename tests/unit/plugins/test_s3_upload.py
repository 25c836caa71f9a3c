"""What is sent when a multipart upload to S3 is completed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from diskless_fsspec.bucket_store import BucketStore
from diskless_fsspec.s3_upload import S3Upload


class Server:
    """Answers as an S3 server that does, or does not, keep checksums of an upload."""

    bucket = "bucket"

    def __init__(self, *, keeps_checksums: bool) -> None:
        self.keeps_checksums = keeps_checksums
        self.completed: list[Any] = []

    def name(self, key):
        return key

    async def attempt(self, doing, call):
        return await call

    async def call(self, _method, operation, **arguments):
        match operation:
            case "create_multipart_upload":
                return {"UploadId": "1", **({"ChecksumAlgorithm": "CRC32"} if self.keeps_checksums else {})}
            case "upload_part":
                return {"ETag": f"tag-{arguments['PartNumber']}", "ChecksumCRC32": "sum"}
            case "complete_multipart_upload":
                self.completed = arguments["MultipartUpload"]["Parts"]
        return {}


@pytest.mark.parametrize(("keeps_checksums", "sums"), [(True, {"ChecksumCRC32": "sum"}), (False, {})])
async def test_parts_are_named_with_a_checksum_only_where_the_server_keeps_it(
    keeps_checksums: bool, sums: dict[str, str]
) -> None:
    server = Server(keeps_checksums=keeps_checksums)
    upload = S3Upload(cast("BucketStore", server), "key")
    await upload.begin()
    await upload.send(0, 0, memoryview(b"a"))
    await upload.finish(1, 1, memoryview(b"b"))
    assert server.completed == [
        {"PartNumber": 1, "ETag": "tag-1", **sums},
        {"PartNumber": 2, "ETag": "tag-2", **sums},
    ]
