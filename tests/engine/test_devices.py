from __future__ import annotations

import subprocess
import sys
import threading
import weakref

import pytest
import torch

from elastic_dit.engine import devices

CPU = torch.device("cpu")


def test_freed_memory_is_kept_on_glibc() -> None:
    code = "from elastic_dit.engine.devices import keep_freed_memory as k; print(k())"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert output.stdout.strip() == "True"


def test_another_system_keeps_its_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert devices.keep_freed_memory() is False


def test_threads_are_set_for_the_thread_that_computes() -> None:
    seen: list[int] = []

    def compute() -> None:
        devices.prepare(CPU, 2)
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    devices.prepare(CPU, 1)
    assert seen == [2]
    assert torch.get_num_threads() == 1


def test_running_out_of_memory_holds_on_to_nothing() -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    def compute() -> None:
        activations = torch.zeros(10)
        held.append(weakref.ref(activations))
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    with pytest.raises(torch.OutOfMemoryError, match=r"20\.00 GiB") as error:
        devices.freeing_memory(CPU, compute)
    assert error.value.__context__ is None
    assert held[0]() is None


def test_other_errors_and_results_pass_unchanged() -> None:
    def fail() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        devices.freeing_memory(CPU, fail)
    assert devices.freeing_memory(CPU, lambda: 3) == 3


def test_a_cpu_is_a_virtual_gpu() -> None:
    assert devices.device_kind(CPU) == "virtual"
    assert devices.memory_bytes(CPU) > 2**28
    assert devices.allocated_bytes(CPU, 123) == 123
