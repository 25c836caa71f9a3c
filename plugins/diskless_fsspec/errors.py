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
_REDIRECTS = (301, 302, 303, 307, 308)
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

_SKEWED = "RequestTimeTooSkewed"
_NOT_FOUND = 404

_REDIRECT_ADVICE = (
    "the store redirects the request and does not say to which region: set the region, and the endpoint's url, to "
    "those of the bucket"
)

_CREDENTIAL_ADVICE = "check the credentials and what they may do (read, write, list and delete objects)"


def translated(error: Exception, doing: str) -> WalObjectStoreError:
    """The store's error for `error`. `doing` says what failed, such as "cannot write 'a/b'"; no secret is in it."""
    if isinstance(error, WalObjectStoreError):
        return error
    status, code, text = _response(error)
    if is_foreign_answer(error):
        return WalObjectStoreError(
            f"{doing}: {status}, in an answer that is not the store's. Something else has answered, such as a load "
            "balancer or a proxy: check it, and the endpoint's url",
            retriable=True,
        )
    if code == _SKEWED:
        return WalObjectStoreError(
            f"{doing}: this machine's clock differs from the store's by more than it allows ({code}): set the clock",
            retriable=True,
        )
    if isinstance(error, RecursionError) or (status is not None and status in _REDIRECTS):
        # botocore asks where to go, which is redirected too, and so on
        return WalObjectStoreError(f"{doing}: {_REDIRECT_ADVICE}", retriable=False)
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


def is_foreign_answer(error: BaseException | None) -> bool:
    """Whether something that is not the store answered in its place: with a page for people, or without a word of S3.

    A 404 of a load balancer says nothing about whether there is an object. S3 says that with a code, except to HEAD.
    """
    for link in _causes(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            meta, code = response.get("ResponseMetadata", {}), str(response.get("Error", {}).get("Code", ""))
            if str(meta.get("HTTPHeaders", {}).get("content-type", "")).startswith("text/html"):
                return True
            is_head = str(getattr(link, "operation_name", "")).startswith("Head")
            return meta.get("HTTPStatusCode") == _NOT_FOUND and code in ("", str(_NOT_FOUND)) and not is_head
    return False


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
