from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elastic_dit.cost import read_polynomial_cost, read_stage_latencies
from elastic_dit.data import data_path
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from tests.cost.shapes import opensora

HEADER = "stage,dop,resolution,batch,latency_s\n"


@pytest.mark.parametrize(
    ("resolution", "stage", "dop", "seconds"),
    [
        ("144p", Stage.DIT, 1, 3.01),
        ("240p", Stage.DIT, 2, 4.59),
        ("360p", Stage.DIT, 8, 3.68),
        ("480p", Stage.DIT, 4, 11.76),
        ("360p", Stage.DECODER, 1, 0.87),
        ("360p", Stage.ENCODER, 1, 0.0),
    ],
)
def test_figure_17(resolution: str, stage: Stage, dop: int, seconds: float) -> None:
    found = read_stage_latencies().stage_seconds(opensora(resolution), stage, dop)
    assert found == pytest.approx(seconds)


def test_another_batch_leaves_out_what_ran_out_of_memory() -> None:
    cost = read_stage_latencies(batch=8)
    assert cost.stage_seconds(opensora("144p"), Stage.DIT, 1) == pytest.approx(20.08)
    # 480p did not fit at batch 8: its value comes from the line through 240p and 360p.
    assert cost.stage_seconds(opensora("480p"), Stage.DIT, 1) > 148.4


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("stage,dop\n", "a header with resolution, batch, latency_s"),
        (
            HEADER + "unet,1,144p,1,3.0\n",
            "t.csv:2.stage = 'unet': must be one of encoder, dit, vae",
        ),
        (HEADER + "dit,1,145p,1,3.0\n", "t.csv:2.resolution = '145p'"),
        (HEADER + "dit,one,144p,1,3.0\n", "t.csv:2.dop = 'one': must be a number"),
        (HEADER + "dit,1,144p,1,fast\n", "t.csv:2.latency_s = 'fast': must be a number"),
    ],
)
def test_a_wrong_table_is_refused_by_line_and_column(
    tmp_path: Path, rows: str, message: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(rows)
    with pytest.raises(ConfigError, match=message):
        read_stage_latencies(path)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a readable file"):
        read_stage_latencies(tmp_path / "none.csv")


def _without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        del content[keys[-1]]

    return change


def _rename_quantity(content: dict[str, Any]) -> None:
    content["stages"]["vae_decode"]["x_name"] = "pixels"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("stages"), "stages = None: must be an object"),
        (_without("parallelism", "sp"), "parallelism.sp = None: must be a number"),
        (_without("stages", "dit_step_chunk"), "stages.dit_step_chunk = None"),
        (_without("stages", "vae_decode", "coeffs", "b"), "vae_decode.coeffs.b = None"),
        (_rename_quantity, "x_name = 'pixels': must be one of latent_seq_len, num_steps"),
    ],
)
def test_a_wrong_cost_model_is_refused_by_field(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    source = data_path("mixed_priority/cost_model/tp1_ulysses1_ring1_cfg1.json")
    content = json.loads(source.read_text())
    change(content)
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        read_polynomial_cost(tmp_path)


def test_a_folder_without_cost_models_or_with_other_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a folder with JSON cost models"):
        read_polynomial_cost(tmp_path)
    (tmp_path / "c.json").write_text("{")
    with pytest.raises(ConfigError, match="a readable JSON file"):
        read_polynomial_cost(tmp_path)


def test_a_data_file_that_does_not_ship() -> None:
    with pytest.raises(FileNotFoundError, match=r"ships no data file 'x\.csv'"):
        data_path("x.csv")
