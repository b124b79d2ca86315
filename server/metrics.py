"""Prometheus metrics with vLLM's suffixes under the prefix `dspark:`, fed by engine events alone.

Invariants: accepted tokens are the sum over positions; draft tokens are the sum of proposal widths; token counters are
the sums of the usages that clients were told.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from engine.types import Event, Failed, Finished, Prefilled, Prefilling, Round

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_ITL = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """One registry for one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._lock = threading.Lock()

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"dspark:{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"dspark:{name}", text, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"dspark:{name}", text, buckets=buckets, registry=self.registry)

        self.running = gauge("num_requests_running", "Requests in prefill or decode.")
        self.waiting = gauge("num_requests_waiting", "Requests in the queue.")
        self.kv_usage = gauge("kv_cache_usage_perc", "Share of the prefix cache's byte budget in use.")
        self.prefix_unsound = gauge(
            "prefix_cache_unsound", "Stored states that did not add up and were dropped; anything but 0 is a fault."
        )
        self.state_bytes = gauge("state_bytes", "Bytes that the requests under way may come to take.")
        self.state_budget = gauge("state_budget_bytes", "Bytes that they may take together; 0 is no limit.")
        self.prefix_queries = counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self.prefix_hits = counter("prefix_cache_hits", "Prompt tokens served from the prefix cache.")
        self.preemptions = counter("num_preemptions", "Requests set back to the queue.")
        self.prompt = counter("prompt_tokens", "Prompt tokens.")
        self.generation = counter("generation_tokens", "Delivered tokens.")
        self.success = counter("request_success", "Finished requests.", ("finished_reason",))
        self.failures = counter("request_failure", "Requests that failed inside the engine.")
        self.ttft = histogram("time_to_first_token_seconds", "From submit to the first token.")
        self.itl = histogram("inter_token_latency_seconds", "Between deliveries, per token.", _ITL)
        self.e2e = histogram("e2e_request_latency_seconds", "From submit to the end.")
        self.queue = histogram("request_queue_time_seconds", "In the queue.")
        self.prefill = histogram("request_prefill_time_seconds", "Reading the prompt.")
        self.decode = histogram("request_decode_time_seconds", "From the first token to the last.")
        self.iteration = histogram("iteration_tokens_total", "Committed tokens a round.", (1, 2, 4, 8, 16, 32, 64))
        self.drafts = counter("spec_decode_num_drafts", "Rounds that proposed something.")
        self.draft_tokens = counter("spec_decode_num_draft_tokens", "Proposed tokens.")
        self.accepted = counter("spec_decode_num_accepted_tokens", "Proposed tokens that the target accepted.")
        self.accepted_at = counter(
            "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens by position in the proposal.", ("position",)
        )

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def totals(self) -> dict[str, Any]:
        """A few numbers for /health."""
        return {"running": int(_value(self.running)), "waiting": int(_value(self.waiting))}

    def track(self) -> Track:
        """A listener for one request, from its submission on. Called on the model thread."""
        return Track(self)


def _value(gauge: Gauge) -> float:
    return next(sample.value for metric in gauge.collect() for sample in metric.samples)


class Track:
    """One request's contribution."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._submitted = time.perf_counter()
        self._last: float | None = None
        self._first = 0.0
        self._state = "waiting"
        metrics.waiting.inc()

    def __call__(self, event: Event) -> None:
        match event:
            case Prefilling():
                self._run()
            case Prefilled():
                self._run()
                m = self._metrics
                m.prefix_queries.inc(event.tokens)
                m.prefix_hits.inc(event.cached)
                m.queue.observe(event.queued_ms / 1000)
                m.prefill.observe(event.ms / 1000)
            case Round():
                self._round(event)
            case Finished() | Failed():
                self._end(event)
            case _:
                pass

    def _run(self) -> None:
        if self._state == "waiting":
            self._state = "running"
            self._metrics.waiting.dec()
            self._metrics.running.inc()

    def _round(self, event: Round) -> None:
        m, now = self._metrics, time.perf_counter()
        if self._last is None:
            self._first = now
            m.ttft.observe(now - self._submitted)
        else:
            m.itl.observe((now - self._last) / len(event.tokens))
        self._last = now
        m.iteration.observe(len(event.tokens))
        if event.drafted:
            m.drafts.inc()
            m.draft_tokens.inc(len(event.drafted))
            m.accepted.inc(event.accepted)
            for position in range(event.accepted):
                m.accepted_at.labels(str(position)).inc()

    def _end(self, event: Finished | Failed) -> None:
        m, now = self._metrics, time.perf_counter()
        if self._state == "over":
            return
        (m.waiting if self._state == "waiting" else m.running).dec()
        self._state = "over"
        m.prompt.inc(event.usage.prompt)
        m.generation.inc(event.usage.completion)
        m.e2e.observe(now - self._submitted)
        if self._last is not None:
            m.decode.observe(self._last - self._first)
        if isinstance(event, Finished):
            m.success.labels({"cancel": "abort", "context": "length"}.get(event.reason, event.reason)).inc()
        else:
            m.failures.inc()

    def abandon(self) -> None:
        """The engine refused the request: it never waited."""
        if self._state == "waiting":
            self._state = "over"
            self._metrics.waiting.dec()
