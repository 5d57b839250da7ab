from __future__ import annotations

import pickle

from distributed import Worker

from elastic_dit.cluster.launch.devices import find_devices
from elastic_dit.cluster.launch.nanny import SteadyNanny
from elastic_dit.cluster.launch.workers import control_worker_spec, worker_spec
from elastic_dit.config import Config

CONFIG = Config.parse({"engine": {"cpu_threads": 2}})


def test_one_nanny_per_gpu_and_one_for_control() -> None:
    spec = worker_spec(find_devices("0,1"), name="m", config=CONFIG, local_directory="/tmp")
    assert list(spec) == ["m-0", "m-1", "m-control"]
    assert all(entry["cls"] is SteadyNanny for entry in spec.values())
    first, second, control = (entry["options"] for entry in spec.values())
    assert first["name"] == "m-0"
    assert first["nthreads"] == 1
    assert first["memory_limit"] == 0
    assert first["resources"] == {"GPU": 1.0}
    assert second["env"]["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert control["resources"] == {"CONTROL": 1.0}
    assert control["env"]["CUDA_VISIBLE_DEVICES"] == ""
    assert {entry["local_directory"] for entry in (first, second, control)} == {"/tmp"}


def test_virtual_gpus_get_their_threads() -> None:
    spec = worker_spec(find_devices(virtual_gpus=1), name="m", config=CONFIG, control_worker=False)
    assert list(spec) == ["m-0"]
    assert spec["m-0"]["options"]["env"] == {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
    }


def test_what_the_caller_says_is_added_or_wins() -> None:
    spec = worker_spec(
        find_devices("0"),
        name="pod",
        config=CONFIG,
        numbered=False,
        control_worker=False,
        nthreads=4,
        memory_limit="4GB",
        resources={"VRAM": 80e9},
        env={"OMP_NUM_THREADS": "8"},
    )
    options = spec["pod"]["options"]
    assert options["nthreads"] == 4
    assert options["memory_limit"] == "4GB"
    assert options["resources"] == {"GPU": 1.0, "VRAM": 80e9}
    assert options["env"]["OMP_NUM_THREADS"] == "8"


def test_the_control_worker_takes_no_share_of_what_gpus_are_given() -> None:
    options = control_worker_spec("m", nthreads=8, resources={"VRAM": 1.0})["m-control"]["options"]
    assert (options["nthreads"], options["resources"]) == (1, {"CONTROL": 1.0})


def test_without_a_nanny_it_is_a_worker() -> None:
    spec = worker_spec(
        find_devices("0"), name="m", config=CONFIG, nanny=False, control_worker=False
    )
    assert spec["m-0"]["cls"] is Worker
    assert "env" not in spec["m-0"]["options"]


def test_plugins_reach_another_process() -> None:
    spec = worker_spec(find_devices("0"), name="m", config=CONFIG)
    for entry in spec.values():
        for plugin in entry["options"]["plugins"]:
            assert repr(pickle.loads(pickle.dumps(plugin))) == repr(plugin)
