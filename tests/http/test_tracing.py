"""OpenTelemetry spans."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.state import Phase
from tests.cluster.conditions import eventually
from tests.http.asgi import client_of, living, run


def test_spans_of_a_request_and_of_its_generation():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def names():
        return {span.name for span in exporter.get_finished_spans()}

    async def main():
        desk = FakeDesk()
        async with living(desk, tracer=provider.get_tracer("t")) as app, client_of(app) as client:
            job_id = (await client.post("/v1/videos", json={"prompt": "a"})).json()["id"]
            [follower] = app.app.state.spans._followed.values()
            await eventually(lambda: follower.get_coro().cr_await is not None)
            for phase, before in ((Phase.ENCODING, "queued"), (Phase.DENOISING, "encoding")):
                desk.move(job_id, phase)
                await eventually(lambda before=before: before in names())
            desk.complete(job_id)
            await eventually(lambda: "generation" in names())

    run(main())
    spans = {span.name: span for span in exporter.get_finished_spans()}
    generation = spans["generation"]
    assert generation.attributes["gen_ai.request.model"] == "fake"
    assert generation.attributes["elastic_dit.phase"] == "completed"
    phases = [spans[name] for name in ("queued", "encoding", "denoising")]
    assert {span.parent.span_id for span in phases} == {generation.context.span_id}
    assert phases[2].attributes["elastic_dit.dop"] == 1
    assert [span.start_time for span in phases[1:]] == [span.end_time for span in phases[:2]]


def test_spans_are_sent_where_the_environment_says():
    received = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    program = """
from opentelemetry import trace
from elastic_dit.http.tracing import export_spans
export_spans()
trace.get_tracer("t").start_span("a-span-of-ours").end()
assert trace.get_tracer_provider().force_flush()
"""
    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_port}"
            subprocess.run(
                [sys.executable, "-c", program],
                check=True, timeout=60,
                env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
            )  # fmt: skip
        finally:
            server.shutdown()
            thread.join()
    [(path, body)] = received
    assert path == "/v1/traces"
    assert b"a-span-of-ours" in body
    assert b"elastic-dit" in body
