from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elastic_dit.cost import read_polynomial_cost
from elastic_dit.data import data_path
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from elastic_dit.simulate.readers import read_csv, read_mixed_priority, read_request_lines

WORKLOADS = "mixed_priority/workloads"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------- CSV
def test_a_csv_in_any_order(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "at_s,label,width,height,num_frames,priority,deadline_s\n"
        "4.5,big,640,360,51,,\n"
        "1,small,256,144,,7,30\n",
    )
    small, big = read_csv(path, options={"model": "m", "num_frames": 17})
    assert (small.at_s, small.label, big.at_s, big.label) == (1.0, "small", 4.5, "big")
    assert (small.request.num_frames, big.request.num_frames) == (17, 51)
    assert (small.request.priority, small.request.deadline_s) == (7, 30.0)
    assert (big.request.priority, big.request.deadline_s) == (0, None)
    assert small.request.request_id == "line-3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("width,height\n", "trace.txt = 'width, height': must be a header with at_s"),
        ("at_s,colour\n", "trace.txt.colour = 'colour': must be one of at_s, label, request_id"),
        ("at_s,width,height\nsoon,1,1\n", "trace.txt:2.at_s = 'soon': must be a number"),
        ("at_s,width,height\n-1,1,1\n", "trace.txt:2.at_s = -1.0: must be a finite time"),
        ("at_s,width,height\nnan,1,1\n", "trace.txt:2.at_s = nan: must be a finite time"),
        ("at_s,width,height\n1,0,1\n", "trace.txt:2.width = '0': must be a whole number of 1"),
        ("at_s,width,height\n1,,1\n", "trace.txt:2.width = None: must be given"),
        (
            "at_s,width,height,request_id\n1,8,8,a\n2,8,8,a\n",
            "request_id = 'a': must be given only",
        ),
    ],
)
def test_a_wrong_csv_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_csv(write(tmp_path, text))
    assert message in str(caught.value)


def test_what_is_no_readable_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a readable file"):
        read_csv(tmp_path / "none.csv")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="a text file in UTF-8"):
        read_request_lines(tmp_path / "binary")


# ------------------------------------------------------------------------------------- lines
def test_lines_of_requests(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "# two calls\n\n"
        "Request(request_id='req-0002', prompt='a cat, \"sitting\"', width=1536, height=1536,"
        " num_inference_steps=70, timestamp=2.5, slo_ms=9000)\n"
        "Request(request_id='req-0001', width=512, height=512, timestamp=0.5, seed=None)\n",
    )
    first, second = read_request_lines(path)
    assert (first.at_s, first.request.request_id, first.request.width) == (0.5, "req-0001", 512)
    assert second.request.prompt == 'a cat, "sitting"'
    assert second.request.num_inference_steps == 70
    assert second.request.deadline_s == 9.0
    assert first.request.deadline_s is None


def test_a_trace_without_timestamps_takes_given_times(tmp_path: Path) -> None:
    path = write(tmp_path, "Request(width=8, height=8)\nRequest(width=16, height=8)\n")
    arrivals = read_request_lines(path, at_s=[3.0, 1.0])
    assert [(a.at_s, a.request.width) for a in arrivals] == [(1.0, 16), (3.0, 8)]
    with pytest.raises(ConfigError, match=r"trace\.txt:2\.timestamp = None"):
        read_request_lines(path, at_s=[3.0])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Request(width=8", "must be a line Request(name=value, ...)"),
        ("Image(width=8)", "must be a line Request(name=value, ...)"),
        ("Request(8)", "must be a line Request(name=value, ...)"),
        ("__import__('os')", "must be a line Request(name=value, ...)"),
        ("Request(width=open('x'))", "trace.txt:1.width = \"open('x')\": must be a literal value"),
        ("Request(colour=8)", "trace.txt:1.colour = 'colour': must be one of request_id, prompt"),
        ("Request(width=8, height=8)", "trace.txt:1.timestamp = None: must be a number"),
        ("Request(width=8, height=0, timestamp=1)", "trace.txt:1.height = 0: must be a whole"),
        ("Request(width=8, height=8, timestamp=1, slo_ms='x')", "trace.txt:1.slo_ms = 'x'"),
    ],
)
def test_a_wrong_line_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_request_lines(write(tmp_path, line + "\n"))
    assert message in str(caught.value)


# ------------------------------------------------------------------------------------- JSON
@pytest.mark.parametrize("path", sorted(data_path(WORKLOADS).glob("*.json")), ids=lambda p: p.stem)
def test_every_packaged_workload_reads(path: Path) -> None:
    arrivals = read_mixed_priority(path)
    assert len(arrivals) == len(json.loads(path.read_text())["requests"])
    assert {arrival.label for arrival in arrivals} == {"S", "M", "L"}
    assert [a.at_s for a in arrivals] == sorted(a.at_s for a in arrivals)


def test_deadlines_are_multiples_of_the_time_alone() -> None:
    cost = read_polynomial_cost()
    alpha = {"S": 1.5, "M": 2.0, "L": 6.0}
    priority = {"S": 100, "M": 50, "L": 0}
    path = data_path(f"{WORKLOADS}/a14b_tridentserve_seed0_load1.5.json")
    for arrival in read_mixed_priority(path):
        alone_s = sum(cost.stage_seconds(arrival.request, stage) for stage in Stage)
        assert arrival.request.deadline_s == pytest.approx(alpha[arrival.label] * alone_s, abs=0.01)
        assert arrival.request.priority == priority[arrival.label]


def _entry() -> dict[str, Any]:
    path = data_path(f"{WORKLOADS}/a14b_tridentserve_seed0_load1.5.json")
    entry: dict[str, Any] = json.loads(path.read_text())["requests"][0]
    return entry


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deadline_ms": None}, "requests.0.deadline_ms = None: must be a number"),
        ({"deadline_ms": 1.0}, "requests.0.deadline_s = "),
        ({"width": "wide"}, "requests.0.width = 'wide': must be a whole number"),
        ({"arrival_ms": -5.0}, "requests.0.at_s = -0.005: must be a finite time"),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    content = {"requests": [{**_entry(), **change}]}
    with pytest.raises(ConfigError) as caught:
        read_mixed_priority(write(tmp_path, json.dumps(content)))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["request_id", "num_steps", "arrival_ms", "request_class"])
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    entry = _entry()
    del entry[name]
    with pytest.raises(ConfigError, match=rf"requests\.0\.{name} = None: must be given"):
        read_mixed_priority(write(tmp_path, json.dumps({"requests": [entry]})))


@pytest.mark.parametrize("text", ["{", "[]", '{"requests": 1}', '{"requests": [1]}'])
def test_what_is_no_workload_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        read_mixed_priority(write(tmp_path, text))
