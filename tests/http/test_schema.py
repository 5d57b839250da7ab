"""Requests made up from the published document never break the server."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings

from elastic_dit.config import HttpConfig
from elastic_dit.http.app import make_app
from elastic_dit.http.fake_desk import FakeDesk

EXAMPLES = 8

app = make_app(FakeDesk(instant=True), HttpConfig(answer_timeout_s=5.0))
schema = schemathesis.openapi.from_asgi("/openapi.json", app)


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
def test_nothing_that_the_document_allows_or_forbids_is_a_server_error(case):
    answer = case.call()
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert set(answer.json()) == {"error"}


def test_all_routes_were_tried():
    assert len(list(schema.get_all_operations())) == 14
