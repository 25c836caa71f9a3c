"""How the HTTP interface says that something is wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fastapi import Request
from fastapi.responses import JSONResponse

from diskless_core.admin.models import ErrorAnswer


def error_answer(code: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An answer with this status."""
    return JSONResponse(ErrorAnswer(error_code=code, message=message).model_dump(), status_code=code, headers=headers)


def answer_with(code: int) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    """A handler of exceptions whose messages are the answer, with this status."""

    async def answer(_request: Request, error: Exception) -> JSONResponse:
        return error_answer(code, str(error))

    return answer
