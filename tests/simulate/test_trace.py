from __future__ import annotations

import re
from pathlib import Path

import pytest

from elastic_dit.data import data_path
from elastic_dit.errors import ConfigError
from elastic_dit.simulate.trace import named_workload, read_trace

FORMS = {
    "csv": "at_s,width,height\n0,640,360\n1.5,640,360\n",
    "lines": "# a trace\nRequest(request_id='a', width=640, height=360, timestamp=0.0)\n",
}


@pytest.mark.parametrize(("form", "count"), [("csv", 2), ("lines", 1)])
def test_the_form_of_a_file_is_recognised(tmp_path: Path, form: str, count: int) -> None:
    path = tmp_path / "trace"
    path.write_text(FORMS[form], encoding="utf-8")
    assert len(read_trace(path)) == count


def test_mixed_priority_json_is_recognised() -> None:
    name = "a14b_foreground_burst_seed0_load1.0.json"
    read = read_trace(data_path(f"mixed_priority/workloads/{name}"))
    assert read == named_workload("mixed-priority:foreground_burst@1.0")
    assert len(read) == 79


@pytest.mark.parametrize("content", ["", "at_s\n", "width,height\n", "{}", "Request(1)"])
def test_what_is_no_trace_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "trace"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="trace"):
        read_trace(path)


def test_missing_and_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="readable file"):
        read_trace(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_trace(tmp_path / "binary")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ddit:1:1@0.5",
        "ddit:1:1:1@fast",
        "mixed-priority:x@1.0",
        "mixed-priority:tridentserve@9.9",
    ],
)
def test_unknown_workloads_are_named(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"mix = '{name}")):
        named_workload(name)


def test_seeds_and_counts() -> None:
    first, second = (named_workload("ddit:1:1:1@0.5", count=7, seed=seed) for seed in (0, 1))
    assert len(first) == 7
    assert first != second
