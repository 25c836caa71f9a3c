"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.cluster.operations import Refusal
from diskless_core.cluster.quota_changes import QuotaAlteration, QuotaChange
from diskless_core.cluster.quota_filters import Component
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

DescribedEntry = DescribeClientQuotasResponse.EntryData
AlteredEntry = AlterClientQuotasResponse.EntryData


def describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Handle DescribeClientQuotas."""
    components = [Component(one.entity_type, one.match_type, one.match) for one in request.components]
    found = context.services.client_quotas.describe(components, strict=request.strict)
    if isinstance(found, Refusal):
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=int(found.code), error_message=found.message, entries=None
        )
    return DescribeClientQuotasResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.NONE),
        error_message=None,
        entries=[
            DescribedEntry(
                entity=[DescribedEntry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[DescribedEntry.ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
            )
            for entity, quotas in sorted(found.items(), key=lambda item: str(item[0]))
        ],
    )


async def alter_client_quotas(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Handle AlterClientQuotas: each entity by itself."""
    alterations = [
        QuotaAlteration(
            parts=[(part.entity_type, part.entity_name) for part in entry.entity],
            changes=[QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in request.entries
    ]
    refusals: list[Refusal | None]
    try:
        refusals = await context.services.client_quotas.alter(alterations, validate_only=request.validate_only)
    except CoordinatorError as error:
        refusals = [Refusal(code=error.code, message=str(error))] * len(alterations)
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[_altered(one, refusal) for one, refusal in zip(alterations, refusals, strict=True)],
    )


def _altered(alteration: QuotaAlteration, refusal: Refusal | None) -> AlteredEntry:
    return AlteredEntry(
        error_code=int(refusal.code if refusal is not None else ErrorCode.NONE),
        error_message=refusal.message if refusal is not None else None,
        entity=[AlteredEntry.EntityData(entity_type=kind, entity_name=name) for kind, name in alteration.parts],
    )
