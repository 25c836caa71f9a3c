"""The HTTP interface's route for where records lie, for whoever reads topics straight from the object store."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response, status
from fastapi.responses import StreamingResponse

from diskless_core.admin.errors import error_answer
from diskless_core.admin.models import ErrorAnswer
from diskless_core.plugin.layout_codec import CONTENT_TYPE
from diskless_core.tiering.layouts import Layouts

_ERRORS: dict[int | str, dict[str, Any]] = {code: {"model": ErrorAnswer} for code in (404, 422, 503)}
_ANSWERS = _ERRORS | {200: {"content": {CONTENT_TYPE: {}}, "description": "Lines as of `layout_codec`."}}


def add_layout(app: FastAPI, layouts: Callable[[], Layouts]) -> None:
    """Add the route. `layouts` raises CoordinatorError while there are none."""

    @app.get("/topics/layout", response_class=Response, responses=_ANSWERS)
    async def layout(topic: Annotated[list[str] | None, Query()] = None, pattern: str | None = None) -> Response:
        """Where the records of topics lie, of all topics unless some are named, or those that match a pattern wholly.

        Everything that was committed before is in. The last line tells that the answer is whole.
        """
        try:
            wanted = re.compile(pattern) if pattern is not None else None
        except re.error as error:
            message = f"the pattern is no regular expression: {error}"
            return error_answer(status.HTTP_422_UNPROCESSABLE_CONTENT, message)
        names = topic or []
        everything = wanted is None and not names
        source = layouts()
        pinned = await source.pin(
            names, lambda name: everything or (wanted is not None and wanted.fullmatch(name) is not None)
        )
        return StreamingResponse(source.encoded(pinned), media_type=CONTENT_TYPE)
