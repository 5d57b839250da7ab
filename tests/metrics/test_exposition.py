"""Readings travel, add up, and become what Prometheus reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from elastic_dit.metrics import catalogue
from elastic_dit.metrics.catalogue import METRICS, PREFIX, Kind
from elastic_dit.metrics.exposition import expose
from elastic_dit.metrics.tally import MAX_SERIES, OTHER, Readings, Tally


def parsed(readings: Readings) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = expose(readings).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_names_are_unique_and_follow_prometheus():
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
        assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert metric.help.endswith(".")


@given(st.lists(st.floats(0, 1e5), max_size=30), st.text(max_size=20))
def test_a_histogram_arrives_as_prometheus_means_it(values, model):
    tally = Tally()
    for value in values:
        tally.observe(catalogue.LATENCY_S, value, model, "video")
    readings = Readings.from_wire(tally.readings().to_wire())
    samples = parsed(readings)
    name = f"{PREFIX}{catalogue.LATENCY_S.name}"
    labels = (("kind", "video"), ("model", model))
    if not values:
        assert samples == {}
        return
    assert samples[f"{name}_count", labels] == len(values)
    assert abs(samples[f"{name}_sum", labels] - sum(values)) < 1e-6 * (1 + sum(values))
    for bound in catalogue.LATENCY_S.buckets:
        key = (f"{name}_bucket", tuple(sorted((*labels, ("le", str(bound))))))
        assert samples[key] == sum(value <= bound for value in values)


def test_counters_and_gauges():
    tally = Tally()
    tally.count(catalogue.IMAGES, 'a "model"\nof mine')
    tally.count(catalogue.IMAGES, 'a "model"\nof mine', by=2)
    readings = tally.readings()
    readings.put(catalogue.PLAN_EPOCH, 7)
    assert parsed(readings) == {
        ("elastic_dit_image_num_total", (("model", 'a "model"\nof mine'),)): 3.0,
        ("elastic_dit_placement_epoch", ()): 7.0,
    }


def test_readings_of_another_release_are_left_out():
    assert parsed(Readings([("of_tomorrow", (), 1.0)], [("too", (), [1], 1.0)])) == {}


def test_labels_that_strangers_choose_do_not_fill_the_memory():
    tally = Tally()
    for number in range(MAX_SERIES + 50):
        tally.count(catalogue.IMAGES, f"model-{number}")
    values = {labels: value for _, labels, value in tally.readings().values}
    assert len(values) == MAX_SERIES + 1
    assert values[(OTHER,)] == 50
