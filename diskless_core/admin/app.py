"""The HTTP interface's routes, and the uvicorn server that runs them. Imported by `http` when it is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, Request, Response, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from diskless_core.admin import models
from diskless_core.admin.cluster import add_cluster
from diskless_core.admin.compaction import add_compaction
from diskless_core.admin.driver import add_driver
from diskless_core.admin.errors import answer_with, error_answer
from diskless_core.admin.layout import add_layout
from diskless_core.admin.remote_log import add_remote_log
from diskless_core.admin.request_checks import check_request
from diskless_core.admin.sources import (
    OrphanScan,
    ShardSource,
    Sources,
)
from diskless_core.admin.speaker import SpeakerHeaders
from diskless_core.admin.validation import validate_plugin
from diskless_core.config.describe import describe_settings
from diskless_core.coordinator.errors import ClockSkewError, CoordinatorError, NotCoordinatorError
from diskless_core.coordinator.status import ShardStatus
from diskless_core.files.orphans import ScanReport
from diskless_core.metrics import CONTENT_TYPE
from diskless_core.plugin.errors import PluginError, PluginNotFoundError
from diskless_core.plugin.orphan_detection import OrphanDetectionError
from diskless_core.plugin_host.loading import LoadedPlugin, QuarantinedPlugin
from diskless_core.plugin_host.nouns import NOUNS, backend_errors

MAX_BODY_BYTES = 16 << 20
"""Of a request. The largest that there is use for names the segments of one partition, some 400 bytes each."""

RETRY_AFTER_S = 1
"""When a broker is asked again whose coordinators are about to be led, or have just moved."""

_WORDS_OF_VALIDATORS = ("value_error", "assertion_error")
_UNAVAILABLE = (*backend_errors(), OrphanDetectionError)


class EmbeddedServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the broker around it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def build_server(app: FastAPI, *, grace_s: int) -> EmbeddedServer:
    """A server for the running event loop. At its end, requests under way get `grace_s` seconds."""
    return EmbeddedServer(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=grace_s,
        )
    )


def build_app(sources: Sources) -> FastAPI:
    """All routes. Those that import plugins run in threads, the others on the event loop."""
    # No pages of FastAPI's own: they load scripts from elsewhere.
    app = FastAPI(
        title="Diskless",
        summary="Health, metrics, plugins and coordinators of one broker, and its view of the cluster.",
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(check_request)],
        max_body_size=MAX_BODY_BYTES,
    )
    app.add_exception_handler(PluginError, _plugin_error)
    for error in _UNAVAILABLE:
        app.add_exception_handler(error, answer_with(status.HTTP_503_SERVICE_UNAVAILABLE))
    app.add_exception_handler(CoordinatorError, _coordinator_error)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _refused)
    app.add_middleware(SpeakerHeaders, speaker=sources.speaker)
    _add_observation(app, sources)
    add_cluster(app, sources.cluster)
    _add_plugins(app, sources)
    _add_coordinators(app, sources.shards, sources.orphans)
    add_remote_log(app, sources.remote_log)
    add_layout(app, sources.layouts)
    add_compaction(app, sources.compactor, sources.plugins)
    add_driver(app, sources.compactor)
    return app


def _add_observation(app: FastAPI, sources: Sources) -> None:
    @app.get("/metrics", response_class=Response)
    async def scrape() -> Response:
        """All metrics in Prometheus' text format."""
        return Response(sources.metrics.exposition(), media_type=CONTENT_TYPE)

    @app.get("/health/live")
    async def live() -> dict[str, str]:
        """The process runs and its event loop turns."""
        return {"status": "alive"}

    @app.get("/health", responses={503: {"model": models.Readiness}})
    @app.get("/health/ready", responses={503: {"model": models.Readiness}})
    async def ready(response: Response) -> models.Readiness:
        """This broker can serve clients: it leads or follows each coordinator, and the object store takes writes."""
        reasons, speaker = list(sources.readiness()), sources.speaker()
        if reasons:
            response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
        return models.Readiness(
            node_id=speaker.node_id,
            cluster_id=speaker.cluster_id,
            ready=not reasons,
            reasons=reasons,
            warnings=list(sources.warnings()),
        )


def _add_plugins(app: FastAPI, sources: Sources) -> None:
    plugins = sources.plugins

    @app.get("/plugins")
    def list_plugins() -> list[models.PluginAnswer]:
        """All installed plugins, first those that can be used."""
        catalogue = plugins.catalogue()
        return [*map(_usable, catalogue.loaded), *map(_quarantined, catalogue.quarantined)]

    @app.get("/plugins/selected")
    def selected() -> models.SelectedAnswer:
        """The backends that this broker uses: where they come from, their settings, and how they are doing."""
        return models.SelectedAnswer.model_validate(sources.selected())

    @app.get("/plugins/{noun}/{name}/config", responses={404: {"model": models.ErrorAnswer}})
    def describe(noun: str, name: str) -> list[models.SettingAnswer]:
        """Every property that the plugin can be told."""
        described = describe_settings(plugins.get(noun, name).descriptor.settings, f"{noun}.{name}.")
        return [
            models.SettingAnswer(
                name=setting.name,
                type=setting.type,
                required=setting.required,
                default_value=setting.default,
                valid_values=setting.valid_values,
                environment=setting.environment,
                documentation=setting.help,
            )
            for setting in described
        ]

    @app.put("/plugins/{noun}/{name}/config/validate", responses={404: {"model": models.ErrorAnswer}})
    def validate(noun: str, name: str, config: dict[str, str]) -> models.ValidationAnswer:
        """Judge a configuration, given as an object of property names and values, and change nothing."""
        return validate_plugin(plugins.get(noun, name), config)


def _add_coordinators(app: FastAPI, shards: ShardSource, orphans: OrphanScan) -> None:
    @app.get("/coordinator/shards", responses={503: {"model": models.ErrorAnswer}})
    async def list_shards(count: bool = False) -> Sequence[ShardStatus]:
        """All coordinator shards as this broker has them. With `count`, it reads their stores through."""
        return await shards(count=count)

    @app.post("/orphans/scan", responses={503: {"model": models.ErrorAnswer}})
    async def scan_for_orphans(dry_run: bool = False) -> ScanReport:
        """Look for objects that nobody committed, and delete them unless it is a dry run. Takes a listing of all."""
        return await orphans(dry_run=dry_run)


def _usable(plugin: LoadedPlugin) -> models.PluginAnswer:
    entry_point, descriptor = plugin.entry_point, plugin.descriptor
    return models.PluginAnswer(
        name=entry_point.name,
        type=entry_point.noun,
        version=entry_point.version,
        distribution=entry_point.distribution,
        location=plugin.location,
        default=NOUNS[entry_point.noun].default == entry_point.name,
        api_version=descriptor.api_version,
        capabilities=sorted(descriptor.capabilities),
        help=descriptor.help,
    )


def _quarantined(plugin: QuarantinedPlugin) -> models.PluginAnswer:
    entry_point = plugin.entry_point
    return models.PluginAnswer(
        name=entry_point.name,
        type=entry_point.noun,
        version=entry_point.version,
        distribution=entry_point.distribution,
        location=entry_point.value,
        error=plugin.reason,
        traceback=plugin.traceback_text,
    )


async def _coordinator_error(_request: Request, error: Exception) -> JSONResponse:
    """Another broker can answer (421), or this one can soon (503 with `Retry-After`)."""
    if isinstance(error, NotCoordinatorError):
        return error_answer(status.HTTP_421_MISDIRECTED_REQUEST, str(error))
    headers = None if isinstance(error, ClockSkewError) else {"Retry-After": str(RETRY_AFTER_S)}
    return error_answer(status.HTTP_503_SERVICE_UNAVAILABLE, str(error), headers)


async def _plugin_error(_request: Request, error: Exception) -> JSONResponse:
    code = status.HTTP_404_NOT_FOUND if isinstance(error, PluginNotFoundError) else status.HTTP_409_CONFLICT
    return error_answer(code, str(error))


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == status.HTTP_413_CONTENT_TOO_LARGE:
        return error_answer(error.status_code, f"the body is larger than {MAX_BODY_BYTES} bytes")
    return error_answer(error.status_code, error.detail, error.headers)


async def _malformed(_request: Request, error: Exception) -> JSONResponse:
    # FastAPI's own answer repeats what was sent, which may be a secret.
    problems = error.errors() if isinstance(error, RequestValidationError) else ()
    parameters = [problem["loc"][1] for problem in problems if problem["loc"][0] == "query"]
    if parameters:
        return error_answer(422, f"the parameter {parameters[0]} has a value that it can't have")
    return error_answer(422, f"the body is not what it has to be: {'; '.join(map(_body_problem, problems))}")


def _body_problem(problem: dict[str, Any]) -> str:
    """What is wrong where, in pydantic's words, as long as these cannot have the value in them."""
    if problem["type"] == "json_invalid":
        return "it is no JSON"
    place = ".".join(map(str, problem["loc"][1:])) or "all of it"
    return f"{place}: {'it is not valid' if problem['type'] in _WORDS_OF_VALIDATORS else problem['msg']}"
