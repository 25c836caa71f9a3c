"""How the errors of Azure and its client library become errors of the object store.

The service's own text is left out: it quotes signed strings, request ids and times. Its code says what is the matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from diskless_core.plugin.config import redact
from diskless_core.plugin.wal_object_store import WalObjectStoreError

NOT_SATISFIABLE = 416

_CONDITION_NOT_MET = frozenset({"ConditionNotMet", "BlobAlreadyExists", "TargetConditionNotMet"})
"""What the service answers to a write whose condition does not hold."""

_NO_BLOB = "BlobNotFound"

_NOT_IMPLEMENTED = 501
_SERVER_ERRORS = 500

_RETRIABLE_STATUSES = frozenset({408, 409, 425, 429})

_RETRIABLE_CODES = frozenset({"InvalidBlockList", "InvalidBlobOrBlock", "Md5Mismatch", "Crc64Mismatch"})
"""Refused, and might not be the next time: another upload of the blob was finished first, or bytes were lost."""

_LASTING_CODES = frozenset(
    {
        "BlobImmutableDueToPolicy",
        "InvalidBlobType",
        "FeatureVersionMismatch",
        "BlobArchived",
        "AccountIsDisabled",
    }
)
"""Refused with a status that mostly passes, and will be refused again."""

_LARGEST_SKEW_MS = 15 * 60_000
"""By how much the clocks of client and service may differ, for signed requests."""

_TEXT_LENGTH = 200


class RefusedError(WalObjectStoreError):
    """The service or the network refused a request. `status` is None, and `code` empty, when no service answered."""

    def __init__(self, message: str, *, retriable: bool, status: int | None = None, code: str = "") -> None:
        super().__init__(message, retriable=retriable)
        self.status = status
        self.code = code

    @property
    def says_no_blob(self) -> bool:
        """There is a container, and no such blob in it."""
        return self.code == _NO_BLOB

    @property
    def says_condition_not_met(self) -> bool:
        """The write did not take place for its condition did not hold. A lease's 412 has another code."""
        return self.code in _CONDITION_NOT_MET


def translated(
    error: Exception, doing: str, *, now_ms: int, secrets: Iterable[str], has_worked: bool = False
) -> RefusedError:
    """The store's error for one of the client library.

    Args:
        doing: what failed, such as "cannot write 'a/b'".
        now_ms: this machine's time, to compare with the service's.
        secrets: what must not stand in the message.
        has_worked: whether requests were answered before. Then there are credentials, though no token may be had now.
    """
    status, code = _status(error), _code(error)
    if not code and _is_credentials(error):
        advice = (
            "no credentials: give this machine or pod a managed identity with the role Storage Blob Data Contributor "
            "on the container, or set account.key, sas.token or connection.string"
        )
        passes = has_worked or (status is not None and status >= _SERVER_ERRORS)
        return RefusedError(f"{doing}: {advice} ({redact(_described(error), secrets)})", retriable=passes)
    if code == "ContainerNotFound":
        advice = "there is no such container; create it or correct the settings container and account.url"
        return RefusedError(f"{doing}: {advice}", retriable=False, status=status, code=code)
    if not code and str(_headers(error).get("Content-Type", "")).startswith("text/html"):
        why = (
            f"{doing}: {status}, in an answer that is not the service's. Something else has answered, such as a load "
            "balancer or a proxy: check it, and account.url"
        )
        return RefusedError(why, retriable=True, status=status)
    if status in (401, 403):
        clock_advice = _clock_advice(error, now_ms)
        why = f"{doing}: access denied ({status} {code}); {clock_advice or _access_advice(code)}"
        return RefusedError(why, retriable=clock_advice is not None, status=status, code=code)
    if status is not None:
        passes = status >= _SERVER_ERRORS and status != _NOT_IMPLEMENTED
        retriable = (passes or status in _RETRIABLE_STATUSES or code in _RETRIABLE_CODES) and code not in _LASTING_CODES
        return RefusedError(f"{doing}: {status} {code}".rstrip(), retriable=retriable, status=status, code=code)
    described = redact(_described(error), secrets)
    return RefusedError(f"{doing}: {described}", retriable=True)


def _clock_advice(error: Exception, now_ms: int) -> str | None:
    """What to do where the clock is why a request was refused; None where it is not."""
    skew_ms = _skew_ms(error, now_ms)
    if skew_ms is None or abs(skew_ms) <= _LARGEST_SKEW_MS:
        return None
    direction = "ahead of" if skew_ms > 0 else "behind"
    return (
        f"this machine's clock is {abs(skew_ms) // 60_000} minutes {direction} the service's, which allows 15: "
        "set the clock"
    )


def _access_advice(code: str) -> str:
    if code in ("AuthorizationPermissionMismatch", "InsufficientAccountPermissions", "AuthorizationFailure"):
        return (
            "the credentials may not do this: a SAS token needs the permissions racwdl on the container, an identity "
            "the role Storage Blob Data Contributor; the account's firewall must let this machine in"
        )
    if code == "KeyBasedAuthenticationNotPermitted":
        return "the storage account takes no keys: leave account.key unset, to use a managed identity"
    return "check the key, or that the SAS token has not expired and is for this container with the permissions racwdl"


def _skew_ms(error: Exception, now_ms: int) -> int | None:
    """By how much this machine is ahead of the service, or None when the service did not tell its time."""
    date = _headers(error).get("Date")
    if not date:
        return None
    try:
        there: datetime = parsedate_to_datetime(date)
    except ValueError:
        return None
    return now_ms - int(there.timestamp() * 1000)


def _headers(error: Exception) -> Any:
    return getattr(getattr(error, "response", None), "headers", None) or {}


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _code(error: Exception) -> str:
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _is_credentials(error: Exception) -> bool:
    return any(base.__name__ == "ClientAuthenticationError" for base in type(error).__mro__)


def _described(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "timed out"
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:_TEXT_LENGTH]}"
