"""What a folder of weights can have wrong."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from elastic_dit.engine import stage_runtime
from elastic_dit.engine.protocol import ModelSource
from elastic_dit.engine.stage_runtime import StageRuntime, frames_of
from elastic_dit.engine.torch_engine import TorchEngine
from elastic_dit.errors import ConfigError, ModelLoadError, UnsupportedModel
from elastic_dit.request import Stage, StageKey

WEIGHTS = "transformer/diffusion_pytorch_model.safetensors"


def edit(folder: Path, file: str, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = safetensors.torch.load_file(folder / file)
    change(tensors)
    safetensors.torch.save_file(tensors, folder / file, metadata={"format": "pt"})


def truncate(folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[: len(content) // 2])


def garble(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"not a safetensors file at all")


def remove(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def pickled(folder: Path) -> None:
    remove(folder)
    torch.save({}, folder / "transformer" / "diffusion_pytorch_model.bin")


def drop_one(folder: Path) -> None:
    edit(folder, WEIGHTS, lambda tensors: tensors.__delitem__("proj_out.bias"))


def add_one(folder: Path) -> None:
    edit(folder, WEIGHTS, lambda tensors: tensors.update(stranger=torch.zeros(1)))


def reshape_one(folder: Path) -> None:
    edit(folder, WEIGHTS, lambda tensors: tensors.update({"proj_out.bias": torch.zeros(3)}))


def unknown_class(folder: Path) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    index["transformer"] = ["diffusers", "NoSuchTransformer"]
    (folder / "model_index.json").write_text(json.dumps(index))


@pytest.fixture
def copied(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["wan"], tmp_path / "wan"))


def engine_on(folder: Path, **more: object) -> TorchEngine:
    return TorchEngine([ModelSource(name="m", path=str(folder), **more)], "cpu", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (truncate, r"."),
        (garble, r"."),
        (remove, "no file named"),
        (pickled, "no file named"),
        (drop_one, r"missing keys: proj_out\.bias"),
        (add_one, "unexpected keys: stranger"),
        (reshape_one, "."),
        (unknown_class, "NoSuchTransformer is not known"),
    ],
)
def test_bad_weights_are_named_and_leave_nothing(
    spoil: Callable[[Path], None], cause: str, copied: Path
) -> None:
    spoil(copied)
    engine = engine_on(copied)
    with pytest.raises(ModelLoadError, match=cause) as error:
        engine.load(StageKey("m", Stage.DIT))
    assert (error.value.model, error.value.stage) == ("m", "dit")
    assert "\n" not in str(error.value)
    assert engine.info().resident == ()
    assert engine.load(StageKey("m", Stage.DECODER)) > 0, "other stages still load"


def test_what_was_loaded_before_the_failure_is_freed(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[weakref.ref[torch.nn.Module]] = []
    real = stage_runtime.load_component

    def failing(folder, name, dtype, device):
        if name == "tokenizer":
            raise OSError("the disk went away")
        component = real(folder, name, dtype, device)
        alive.append(weakref.ref(component))
        return component

    monkeypatch.setattr(stage_runtime, "load_component", failing)
    with pytest.raises(ModelLoadError, match="the disk went away"):
        engine_on(copied).load(StageKey("m", Stage.ENCODER))
    gc.collect()
    assert len(alive) == 1
    assert alive[0]() is None


def test_dropping_a_stage_frees_its_weights(copied: Path) -> None:
    engine, key = engine_on(copied), StageKey("m", Stage.DIT)
    engine.load(key)
    weights = weakref.ref(engine._resident[key].models[0])
    engine.drop(key)
    gc.collect()
    assert weights() is None


def test_a_stage_needs_no_weights_but_its_own(copied: Path) -> None:
    for other in ("vae", "text_encoder"):
        for file in (copied / other).glob("*.safetensors"):
            file.unlink()
    assert engine_on(copied).load(StageKey("m", Stage.DIT)) > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "nowhere", "no such folder"),
        (lambda folder: folder / "vae", "model_index.json: No such file"),
        (lambda folder: "embedded:nothing", "known: embedded:shapes"),
    ],
)
def test_folders_that_are_no_models(
    make: Callable[[Path], object], message: str, copied: Path
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        TorchEngine([ModelSource(name="m", path=str(make(copied)))], "cpu", 1)


def test_an_unknown_dtype_is_a_setting_at_fault(copied: Path) -> None:
    for dtype in ("int8", "bfloat61", "nn"):
        with pytest.raises(ConfigError, match=rf"models\.m\.dtype = '{dtype}'"):
            engine_on(copied, dtype=dtype)


def test_the_repr_says_what_it_is(folders: dict[str, Path]) -> None:
    engine = engine_on(folders["wan"])
    engine.load(StageKey("m", Stage.DIT))
    runtime = engine._resident[StageKey("m", Stage.DIT)]
    assert isinstance(runtime, StageRuntime)
    assert repr(runtime).startswith("<StageRuntime wan/dit 0.")
    assert repr(runtime.guard) == "<AbortGuard of 2 blocks>"


def test_frames_round_as_diffusers_does_when_it_writes_images() -> None:
    from diffusers.image_processor import VaeImageProcessor

    ties = torch.arange(511) / 510  # half of these fall between two levels
    image = ties.repeat(1, 3, 2, 1)
    levels = (VaeImageProcessor.pt_to_numpy(image) * 255).round().astype("uint8")
    assert (frames_of(image).numpy() == levels).all()
    assert frames_of(image[:, None]).shape == (1, 2, 511, 3)
