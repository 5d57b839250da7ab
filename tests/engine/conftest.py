from __future__ import annotations

from pathlib import Path

import pytest
import torch

from elastic_dit.engine.protocol import ModelSource
from elastic_dit.engine.torch_engine import TorchEngine
from elastic_dit.request import Stage, StageKey
from tests.tiny_models import TINY, TINY_TEXT, save


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the tiny models by name."""
    root = tmp_path_factory.mktemp("models")
    return {name: save(build(), root / name) for name, build in TINY.items()}


@pytest.fixture(scope="session")
def sources(folders: dict[str, Path]) -> tuple[ModelSource, ...]:
    return tuple(
        ModelSource(name=name, path=str(path), options={"max_sequence_length": TINY_TEXT[name]})
        for name, path in folders.items()
    )


@pytest.fixture(scope="session")
def engine(sources: tuple[ModelSource, ...]) -> TorchEngine:
    """An engine that holds all stages of all tiny models."""
    engine = TorchEngine(sources, "cpu", 1)
    for source in sources:
        for stage in Stage:
            engine.load(StageKey(source.name, stage))
    return engine
