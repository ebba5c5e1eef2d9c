"""The metrics for Prometheus, with a token: a scrape from loopback may come through a reverse proxy."""

from fastapi import APIRouter, Request, Response

from entrypoints.web import metrics as prometheus
from entrypoints.web.authentication import Caller
from entrypoints.web.context import context_of
from entrypoints.web.slow_work import slow
from operations.visibility import require_fleet

router = APIRouter(tags=["fleet"])


class Exposition(Response):
    media_type = prometheus.CONTENT_TYPE


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Exposition,
    responses={200: {"content": {prometheus.CONTENT_TYPE: {"schema": {"type": "string"}}}}},
)
@slow("fleet_work")
def metrics(request: Request, caller: Caller) -> Response:
    """For those who see every collection; not for depositors."""
    require_fleet(caller, "read the metrics")
    context = context_of(request)
    return Exposition(prometheus.exposition(context.metrics) + context.requests.exposition())
