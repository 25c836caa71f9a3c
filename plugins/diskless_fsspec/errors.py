"""How the errors of operating system, HTTP services and their clients become errors of the object store.

Clients are told apart by what their exceptions carry, not by class, so that none of them needs to be imported.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from diskless_core.plugin.wal_object_store import WalObjectStoreError

_PERMANENT_ERRNOS = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.EEXIST,
}

_PRECONDITION_FAILED = 412
_NOT_IMPLEMENTED = 501

_RETRIABLE_STATUSES = {408, 409, 425, 429}

_RETRIABLE_CODES = {
    "InternalError",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "OperationAborted",
    "XAmzContentSHA256Mismatch",
    "BadDigest",
    "IncompleteBody",
}

_CREDENTIAL_CODES = {
    "AccessDenied",
    "AllAccessDisabled",
    "AccountProblem",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "403",
    "401",
}

_CREDENTIAL_ERRORS = {"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "DefaultCredentialsError"}

_CREDENTIAL_ADVICE = "check the credentials and what they may do (read, write, list and delete objects)"


def translated(error: Exception, doing: str) -> WalObjectStoreError:
    """The store's error for `error`. `doing` says what failed, such as "cannot write 'a/b'"; no secret is in it."""
    if isinstance(error, WalObjectStoreError):
        return error
    status, code, text = _response(error)
    if code == "NoSuchBucket" or (isinstance(error, FileNotFoundError) and error.errno is None):
        return WalObjectStoreError(f"{doing}: there is no such bucket; create it or correct the url", retriable=False)
    if code in _CREDENTIAL_CODES or status in (401, 403) or _is_credentials(error):
        return WalObjectStoreError(f"{doing}: access denied ({code or text}); {_CREDENTIAL_ADVICE}", retriable=False)
    if status is not None:
        is_passing = status >= 500 and status != _NOT_IMPLEMENTED
        retriable = is_passing or status in _RETRIABLE_STATUSES or code in _RETRIABLE_CODES
        return WalObjectStoreError(f"{doing}: {status} {code} {text}".rstrip(), retriable=retriable)
    return WalObjectStoreError(f"{doing}: {_described(error)}", retriable=not _is_permanent(error))


def response_code(error: BaseException | None) -> str:
    """The service's own code of an error (`NoSuchKey`, `InvalidRange`…), or '' when it has none."""
    return _response(error)[1]


def is_refused_condition(error: BaseException | None) -> bool:
    """Whether a service refused a conditional write because its condition does not hold."""
    return isinstance(error, FileExistsError) or http_status(error) == _PRECONDITION_FAILED


def http_status(error: BaseException | None) -> int | None:
    """The HTTP status of an error, or None when no server answered."""
    return _response(error)[0]


def _response(error: BaseException | None) -> tuple[int | None, str, str]:
    """HTTP status, code and message, as far as the exception or its cause has them."""
    for link in _causes(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            body, meta = response.get("Error", {}), response.get("ResponseMetadata", {})
            return meta.get("HTTPStatusCode", 400), str(body.get("Code", "")), str(body.get("Message", ""))
        status = getattr(link, "code", None) or getattr(link, "status", None)
        if str(status).isdecimal():
            return int(str(status)), "", str(getattr(link, "message", ""))
    return None, "", str(error)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    link = error
    while link is not None:
        yield link
        link = link.__cause__


def _is_credentials(error: Exception) -> bool:
    names = {base.__name__ for link in _causes(error) for base in type(link).__mro__}
    return bool(names & _CREDENTIAL_ERRORS) or (isinstance(error, OSError) and str(error).startswith("Forbidden"))


def _is_permanent(error: Exception) -> bool:
    if isinstance(error, (PermissionError, FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError)):
        return True
    return isinstance(error, OSError) and error.errno in _PERMANENT_ERRNOS


def _described(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "timed out"
    return f"{type(error).__name__}: {error}"
