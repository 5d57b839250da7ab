"""Requests made up from the published document never break the server."""

from __future__ import annotations

import asyncio

import schemathesis
from hypothesis import HealthCheck, settings

from elastic_dit.config import HttpConfig
from elastic_dit.http.app import make_app
from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.http.shapes import image_owner

EXAMPLES = 5

KNOWN = {"video_id": "video_known", "image_id": "img_known", "model": "fake"}
"""Values of path parameters for which there is something."""

desk = FakeDesk(instant=True)
app = make_app(desk, HttpConfig(answer_timeout_s=5.0))
schema = schemathesis.openapi.from_asgi("/openapi.json", app)


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
def test_nothing_that_the_document_allows_or_forbids_is_a_server_error(case):
    answers = [case.call()]
    for name in case.path_parameters or ():
        for request_id, owner in (("video_known", "http"), ("img_known", image_owner("http"))):
            submission = {"prompt": "a", "seed": 1, "request_id": request_id}
            asyncio.run(desk.submit(submission, owner))
        case.path_parameters[name] = KNOWN[name]
        answers.append(case.call())
    for answer in answers:
        assert answer.status_code < 500, answer.text
        assert answer.status_code < 400 or set(answer.json()) == {"error"}


def test_all_routes_were_tried():
    assert len(list(schema.get_all_operations())) == 14
