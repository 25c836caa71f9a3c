"""How obstore's errors become errors of the object store. It tells status and code in its messages only."""

from __future__ import annotations

import re
from collections.abc import Iterable

from diskless_core.plugin.config import redact
from diskless_core.plugin.wal_object_store import WalObjectStoreError

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")

_RETRIABLE_STATUSES = frozenset({408, 409, 425, 429})
_RETRIABLE_CODES = frozenset({"RequestTimeout", "SlowDown", "BadDigest", "IncompleteBody"})
_CONFLICT = 409
_SERVER_ERRORS = 500
_NOT_IMPLEMENTED = 501

_REFUSED = frozenset({"PermissionDeniedError", "UnauthenticatedError"})
_LASTING = frozenset({"InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError"})
_TEXT_LENGTH = 200

_NOT_FOUND = 404
_HEAD = "performing HEAD "
"""The answer to it has no body, and so no code."""

_REDIRECTED = "Received redirect without LOCATION"
_SKEWED = "RequestTimeTooSkewed"


def says_no_bucket(error: Exception) -> bool:
    """Whether it is the bucket that is not there."""
    return "NoSuchBucket" in str(error)


def says_no_object(error: Exception) -> bool:
    """Whether there is a bucket, and no such object in it."""
    return isinstance(error, FileNotFoundError) and not says_no_bucket(error) and not is_foreign_answer(error)


def is_foreign_answer(error: Exception) -> bool:
    """Whether something that is not the store answered in its place: with a page for people, or without a word of S3.

    A 404 of a load balancer says nothing about whether there is an object. S3 says that with a code, except to HEAD.
    """
    text = str(error)
    is_silent = _status(error) == _NOT_FOUND and not _code(error) and _HEAD not in text
    return is_silent or "<html" in text.lower()


def says_conflict(error: Exception) -> bool:
    """Whether another conditional write of the key is under way: neither may have taken effect.

    obstore raises the same error for it as for an object that exists.
    """
    return _status(error) == _CONFLICT


def translated(error: Exception, doing: str, secrets: Iterable[str]) -> WalObjectStoreError:
    """The store's error for one of obstore. `doing` says what failed, such as "cannot write 'a/b'"."""
    if isinstance(error, TimeoutError):
        return WalObjectStoreError(f"{doing}: timed out")
    kind, text = type(error).__name__, str(error)
    if says_no_bucket(error):
        return WalObjectStoreError(f"{doing}: there is no such bucket; create it or correct the url", retriable=False)
    status, code = _status(error), _code(error)
    if is_foreign_answer(error):
        return WalObjectStoreError(
            f"{doing}: {status}, in an answer that is not the store's. Something else has answered, such as a load "
            "balancer or a proxy: check it, and endpoint.url"
        )
    if code == _SKEWED:
        return WalObjectStoreError(
            f"{doing}: this machine's clock differs from the store's by more than it allows ({code}): set the clock"
        )
    if _REDIRECTED in text:
        return WalObjectStoreError(
            f"{doing}: the store redirects the request and does not say to which region: set region and endpoint.url "
            "to those of the bucket",
            retriable=False,
        )
    if kind in _REFUSED or status in (401, 403):
        advice = "check the credentials, the clock, and what they may do (read, write, list and delete objects)"
        return WalObjectStoreError(f"{doing}: access denied ({code or kind}); {advice}", retriable=False)
    if status is not None:
        passes = status >= _SERVER_ERRORS and status != _NOT_IMPLEMENTED
        retriable = passes or status in _RETRIABLE_STATUSES or code in _RETRIABLE_CODES
        return WalObjectStoreError(f"{doing}: {status} {code}".rstrip(), retriable=retriable)
    described = redact(" ".join(text.split())[:_TEXT_LENGTH], secrets)
    return WalObjectStoreError(f"{doing}: {kind}: {described}", retriable=kind not in _LASTING)


def _status(error: Exception) -> int | None:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def _code(error: Exception) -> str:
    found = _CODE.search(str(error))
    return found[1] if found else ""
