"""The page says what is there."""

from __future__ import annotations

import re
from pathlib import Path

from elastic_dit.http import problems
from elastic_dit.http.app import make_app
from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.http.schemas import ImageCreate, VideoCreate, VideoJob
from elastic_dit.metrics.catalogue import METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
SOURCES = Path(problems.__file__).parent


def test_every_metric_with_its_labels_and_meaning():
    rows = [
        f"| `{metric.full_name}` | {', '.join(f'`{label}`' for label in metric.labels)} "
        f"| {metric.help} |"
        for metric in METRICS
    ]
    assert re.findall(r"^\| `elastic_dit_.*$", PAGE, re.MULTILINE) == rows


def test_every_route():
    routes = make_app(FakeDesk()).app.openapi()["paths"]
    written = {re.sub(r"{\w+}", "{id}", path) for path in routes}
    named = set(re.findall(r"(/(?:v1|health|ready|metrics)[^`? |,]*)`?", PAGE))
    assert written <= named


def test_every_field_of_requests_and_jobs():
    told = set(re.findall(r"`(\w+)`", PAGE))
    ours = {*VideoCreate.model_fields, *VideoJob.model_fields}
    assert ours <= told
    without_effect = {"quality", "background", "moderation", "style", "safety_identifier", "stream"}
    assert set(ImageCreate.model_fields) - without_effect <= told


def test_every_code_of_an_error():
    codes = set()
    for path in SOURCES.glob("*.py"):
        codes |= set(re.findall(r'code="(\w+)"', path.read_text(encoding="utf-8")))
    assert codes - {"gone"} <= set(re.findall(r"`(\w+)`", PAGE))
