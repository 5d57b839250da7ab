"""The Grafana board asks for metrics that there are, and for all that matter."""

from __future__ import annotations

import json
import re
from pathlib import Path

from elastic_dit.metrics.catalogue import METRICS, PREFIX, Kind

BOARD = json.loads(
    (Path(__file__).parents[2] / "dashboards" / "grafana.json").read_text(encoding="utf-8")
)
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
LABELS = {metric.full_name: set(metric.labels) for metric in METRICS}


def expressions() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


def base(series: str) -> str:
    """The metric that a series belongs to."""
    histograms = {metric.full_name for metric in METRICS if metric.kind is Kind.HISTOGRAM}
    for suffix in ("_bucket", "_sum", "_count"):
        if series.removesuffix(suffix) in histograms:
            return series.removesuffix(suffix)
    return series


def asked(text: str) -> set[str]:
    return {base(series) for series in re.findall(rf"{PREFIX}\w+", text)}


def test_every_name_is_exported():
    assert asked(json.dumps(BOARD)) <= set(LABELS)


def test_what_is_not_shown_is_left_out_on_purpose():
    left_out = set(LABELS) - asked(json.dumps(BOARD))
    assert left_out == {
        "elastic_dit_gpu_memory_bytes",
        "elastic_dit_http_request_duration_s",
        "elastic_dit_http_requests_open",
    }


def test_labels_are_those_of_the_metrics():
    for expression in expressions():
        allowed = {"le", *(label for name in asked(expression) for label in LABELS[name])}
        used = set(re.findall(r"(\w+)=~?\"", expression))
        for group in re.findall(r"by \(([^)]*)\)", expression):
            used |= {label.strip() for label in group.split(",")}
        assert used <= allowed, expression


def test_legends_show_labels_that_the_expression_keeps():
    for panel in PANELS:
        for target in panel["targets"]:
            kept = set(re.findall(r"by \(([^)]*)\)", target["expr"]))
            names = {label.strip() for group in kept for label in group.split(",")}
            if not kept and "sum" not in target["expr"]:
                names = {label for name in asked(target["expr"]) for label in LABELS[name]}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= names, target


def test_panels_do_not_overlap():
    cells = [
        (x, y)
        for panel in BOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_every_panel_says_what_it_shows():
    assert all(panel["title"] and panel["description"] for panel in PANELS)
