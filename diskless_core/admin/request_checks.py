"""What every route of the HTTP interface refuses: parameters that it does not have, bodies that are not called JSON.

A misspelt parameter would leave the default in force, which may delete what was only to be listed. A web page can send
bodies of other types to any address, this machine's included, without that the browser asks whether it may.
"""

from __future__ import annotations

from typing import Any

from fastapi import HTTPException, Request, status

from diskless_core.plugin.errors import nearest


async def check_request(request: Request) -> None:
    """Refuse a request before its route sees it.

    Raises:
        HTTPException: 422 for an unknown parameter, 415 for a body without the header that says that it is JSON.
    """
    route: Any = request.scope["route"]
    known = {parameter.alias for parameter in route.dependant.query_params}
    for name in request.query_params:
        if name not in known:
            raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, _unknown(name, known))
    if route.body_field is not None and not _is_json(request.headers.get("content-type", "")) and await request.body():
        raise HTTPException(
            status.HTTP_415_UNSUPPORTED_MEDIA_TYPE,
            "the body has to be JSON, sent with the header Content-Type: application/json",
        )


def _unknown(name: str, known: set[str]) -> str:
    if not known:
        return f"there is no parameter {name}: this request has none"
    suggestion = nearest(name, known)
    advice = f"did you mean {suggestion}?" if suggestion else f"there are {', '.join(sorted(known))}"
    return f"there is no parameter {name}; {advice}"


def _is_json(content_type: str) -> bool:
    kind, _, subtype = content_type.partition(";")[0].strip().lower().partition("/")
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))
