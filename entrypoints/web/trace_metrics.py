"""Prometheus metrics of the traces that `arkline exporter` sends."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from operations.trace_export import TraceExport


class TraceCollector(Collector):
    def __init__(self, export: TraceExport) -> None:
        self._export = export

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        counts = self._export.counts()
        family = CounterMetricFamily("arkline_traces", "Traces of ended jobs.", labels=("outcome",))
        family.add_metric(("sent",), counts.sent)
        family.add_metric(("dropped",), counts.dropped)
        yield family
