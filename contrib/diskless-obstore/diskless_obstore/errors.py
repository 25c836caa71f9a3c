"""How obstore's errors become errors of the object store. It tells status and code in its messages only."""

from __future__ import annotations

import re
from collections.abc import Iterable

from diskless_core.plugin.config import redact
from diskless_core.plugin.wal_object_store import WalObjectStoreError

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")

_RETRIABLE_STATUSES = frozenset({408, 409, 425, 429})
_RETRIABLE_CODES = frozenset({"RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "BadDigest", "IncompleteBody"})
_CONFLICT = 409
_SERVER_ERRORS = 500
_NOT_IMPLEMENTED = 501

_REFUSED = frozenset({"PermissionDeniedError", "UnauthenticatedError"})
_LASTING = frozenset({"InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError"})
_TEXT_LENGTH = 200


def says_no_bucket(error: Exception) -> bool:
    """Whether it is the bucket that is not there."""
    return "NoSuchBucket" in str(error)


def says_conflict(error: Exception) -> bool:
    """Whether another conditional write of the key is under way: neither may have taken effect.

    obstore raises the same error for it as for an object that exists.
    """
    found = _STATUS.search(str(error))
    return found is not None and int(found[1]) == _CONFLICT


def translated(error: Exception, doing: str, secrets: Iterable[str]) -> WalObjectStoreError:
    """The store's error for one of obstore. `doing` says what failed, such as "cannot write 'a/b'"."""
    if isinstance(error, TimeoutError):
        return WalObjectStoreError(f"{doing}: timed out")
    kind, text = type(error).__name__, str(error)
    if says_no_bucket(error):
        return WalObjectStoreError(f"{doing}: there is no such bucket; create it or correct the url", retriable=False)
    found_status, found_code = _STATUS.search(text), _CODE.search(text)
    status = int(found_status[1]) if found_status else None
    code = found_code[1] if found_code else ""
    if kind in _REFUSED or status in (401, 403):
        advice = "check the credentials, the clock, and what they may do (read, write, list and delete objects)"
        return WalObjectStoreError(f"{doing}: access denied ({code or kind}); {advice}", retriable=False)
    if status is not None:
        passes = status >= _SERVER_ERRORS and status != _NOT_IMPLEMENTED
        retriable = passes or status in _RETRIABLE_STATUSES or code in _RETRIABLE_CODES
        return WalObjectStoreError(f"{doing}: {status} {code}".rstrip(), retriable=retriable)
    described = redact(" ".join(text.split())[:_TEXT_LENGTH], secrets)
    return WalObjectStoreError(f"{doing}: {kind}: {described}", retriable=kind not in _LASTING)
