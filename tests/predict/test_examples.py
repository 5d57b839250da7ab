from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.errors import ConfigError
from elastic_dit.predict.examples import (
    Example,
    Outcome,
    Situation,
    append_example,
    best_split,
    read_examples,
    write_examples,
)
from elastic_dit.predict.recorder import Recorder
from elastic_dit.predict.split import Split
from elastic_dit.predict.workload import MixPart, Workload
from elastic_dit.request import Stage

MIX = [MixPart(share=2, seconds={Stage.DIT: 3.0}, width=832, num_inference_steps=4)]
SITUATION = Situation(Workload.of_mix(0.5, MIX, speeds={"slow": 0.5}), {"fast": 1, "slow": 2})
SPLIT = Split.of({}, {"fast": 1, "slow": 2}, {})
OTHER = Split.of({}, {"fast": 1}, {"slow": 2})


def test_what_is_written_is_read(tmp_path):
    examples = [
        Example(SITUATION, ((SPLIT, Outcome(0.4, 9.0)), (OTHER, Outcome(0.3, 12.0)))),
        Example(SITUATION, ((OTHER, Outcome(0.2, 1.0)),)),
    ]
    path = tmp_path / "telemetry.jsonl"
    write_examples(path, examples)
    assert list(read_examples(path)) == examples


def test_the_latest_examples_are_kept(tmp_path):
    path = tmp_path / "telemetry.jsonl"
    examples = [Example(SITUATION, ((SPLIT, Outcome(1.0, age)),)) for age in (1.0, 2.0, 3.0)]
    for number, example in enumerate(examples, start=1):
        append_example(path, example, kept=2)
        assert list(read_examples(path)) == examples[max(0, number - 2) : number]


def test_a_file_that_is_something_else_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="line 1"):
        append_example(path, Example(SITUATION, ((SPLIT, Outcome(1.0, 1.0)),)), kept=1)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"nonsense\n", "line 1"),
        (b'{"situation": 3, "seen": []}\n', "situation"),
        ((b'{"situation": {"workload": {"rate_hz": -1, "stage_seconds": {"dit": 1}}, "gpus": {}},'
         b' "seen": []}'), "rate_hz"),
        ((b'{"situation": {"workload": {"rate_hz": 1, "stage_seconds": {"dit": 1}}, "gpus": {}},'
         b' "seen": []}'), "at least one split"),
    ],
)  # fmt: skip
def test_wrong_lines_are_named(tmp_path, content, said):
    path = tmp_path / "telemetry.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        list(read_examples(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="readable"):
        list(read_examples(tmp_path / "none"))


@pytest.mark.parametrize("outcome", [(0.0, 1.0), (1.0, 0.0), (float("nan"), 1.0)])
def test_an_outcome_is_above_nothing(outcome):
    with pytest.raises(ConfigError, match="above 0"):
        Outcome(*outcome)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.integers(1, 9),
        st.tuples(st.floats(0.1, 10), st.floats(0.1, 100)),
        min_size=1,
    )
)
def test_the_best_split_serves_as_much_as_any_within_the_tie(seen):
    outcomes = {Split.of({"": gpus}, {}, {}): Outcome(*figures) for gpus, figures in seen.items()}
    best = outcomes[best_split(outcomes)]
    for other in outcomes.values():
        assert best.throughput_hz >= 0.99 * other.throughput_hz
        assert best.latency_s <= other.latency_s or best.throughput_hz > 0.99 * other.throughput_hz


def test_a_stretch_with_a_change_or_too_few_requests_teaches_nothing():
    recorder = Recorder(window_s=10.0, least=5)
    assert recorder.look(0.0, SITUATION, SPLIT, 0, 3) is None
    assert recorder.look(8.0, SITUATION, OTHER, 50, 3) is None, "another split"
    assert recorder.look(12.0, SITUATION, OTHER, 60, 3) is None, "too short a time"
    assert recorder.look(18.0, SITUATION, OTHER, 54, 3) is None, "too few"
    assert recorder.look(23.0, SITUATION, OTHER, 60, 2) is None
    example = recorder.look(28.0, SITUATION, OTHER, 64, 4)
    assert example == Example(SITUATION, ((OTHER, Outcome(1.0, 3.0)),))


def test_a_stretch_ends_while_no_split_is_in_force_and_goes_on_without_a_workload():
    recorder = Recorder(window_s=10.0, least=5)
    recorder.look(0.0, SITUATION, SPLIT, 0, 3)
    assert recorder.look(5.0, SITUATION, None, 5, 3) is None
    assert recorder.look(6.0, SITUATION, SPLIT, 6, 3) is None
    assert recorder.look(12.0, SITUATION, SPLIT, 12, 3) is None, "six seconds since the move"
    assert recorder.look(14.0, None, SPLIT, 14, 1) is None
    example = recorder.look(16.0, SITUATION, SPLIT, 16, 5)
    assert example == Example(SITUATION, ((SPLIT, Outcome(1.0, 3.0)),))
