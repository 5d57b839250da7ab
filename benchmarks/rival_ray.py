"""Ray Serve's side of rivals.py: three deployments and an ingress, composed as its guide teaches.

https://docs.ray.io/en/latest/serve/model_composition.html: stages are deployments, bound to each
other's constructors; a response is handed to the next handle without being waited for, so that
tensors go from replica to replica through Ray's object store. Each stage is the part of the same
diffusers pipeline that it is in `elastic_dit.report.plain`.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import psutil
from rival_sides import LIMIT_S, Setting

from elastic_dit.config import ModelConfig
from elastic_dit.engine.loading import quiet_libraries
from elastic_dit.families import ServingHints, family_of
from elastic_dit.families.folder import ModelFolder
from elastic_dit.media import Frames
from elastic_dit.report.plain import frames_digest
from elastic_dit.request import GenerationRequest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # all of these before ray is imported
os.environ["RAY_agent_register_timeout_ms"] = "120000"  # noqa: SIM112 - its name
os.environ["PYTHONPATH"] = os.pathsep.join(  # replicas import this module
    filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))
)

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

_STORE_BYTES = 256 * 1024**2
_LOOPBACK = "127.0.0.2"
"""Ray takes 127.0.0.1 for a mistake, and listens where other machines reach it."""
_MANY = 1000
"""Requests under way at the ingress, which computes nothing."""


class _Stage:
    """What all stages do first: the same as the plain pipeline and our engines do."""

    def __init__(self, model: ModelConfig, threads: int) -> None:
        import torch

        from elastic_dit.engine import devices

        devices.prepare(torch.device("cpu"), threads)
        devices.keep_freed_memory()
        quiet_libraries()
        self._torch = torch
        self._folder = ModelFolder.open(model.path)
        self._family = family_of(self._folder)
        self._hints = ServingHints.of(self._folder, model.options, model.name)
        self._dtype = getattr(torch, model.dtype)

    def _pipeline(self, **without: None) -> Any:
        """The model's own pipeline, less the components of other stages."""
        from diffusers import DiffusionPipeline

        pipeline = DiffusionPipeline.from_pretrained(
            self._folder.path, dtype=self._dtype, **without
        )
        pipeline.set_progress_bar_config(disable=True)
        return pipeline

    def _inputs(self, request: GenerationRequest) -> dict[str, Any]:
        return self._family.inputs(request, self._hints)


@serve.deployment(max_ongoing_requests=1)
class Encoder(_Stage):
    """The text encoder."""

    def __init__(self, model: ModelConfig, threads: int) -> None:
        super().__init__(model, threads)
        self._encoder = self._pipeline(transformer=None, vae=None)

    def encode(self, request: GenerationRequest) -> tuple[Any, Any]:
        """Embeddings of the prompt and of what shall not be seen."""
        inputs = self._inputs(request)
        with self._torch.no_grad():
            embeddings: tuple[Any, Any] = self._encoder.encode_prompt(
                prompt=inputs["prompt"],
                negative_prompt=inputs["negative_prompt"],
                do_classifier_free_guidance=request.guidance_scale > 1.0,
                max_sequence_length=inputs["max_sequence_length"],
            )
        return embeddings


@serve.deployment(max_ongoing_requests=1)
class Denoiser(_Stage):
    """The diffusion transformer, from noise to latents."""

    def __init__(self, model: ModelConfig, threads: int) -> None:
        super().__init__(model, threads)
        self._denoiser = self._pipeline(text_encoder=None, tokenizer=None, vae=None)

    def denoise(self, request: GenerationRequest, embeddings: tuple[Any, Any]) -> Any:
        """All steps."""
        inputs = self._inputs(request)
        del inputs["prompt"], inputs["negative_prompt"]
        return self._denoiser(
            **inputs,
            prompt_embeds=embeddings[0],
            negative_prompt_embeds=embeddings[1],
            guidance_scale=request.guidance_scale,
            generator=self._torch.Generator("cpu").manual_seed(request.seed),
            output_type="latent",
        ).frames


@serve.deployment(max_ongoing_requests=1)
class Decoder(_Stage):
    """The VAE, from latents to frames: the end of the pipeline's `__call__`."""

    def __init__(self, model: ModelConfig, threads: int) -> None:
        super().__init__(model, threads)
        from diffusers import AutoencoderKLWan
        from diffusers.video_processor import VideoProcessor

        self._vae = AutoencoderKLWan.from_pretrained(
            self._folder.path, subfolder="vae", dtype=self._dtype
        )
        self._video = VideoProcessor(vae_scale_factor=self._vae.config.scale_factor_spatial)

    def decode(self, latents: Any) -> Frames:
        """Frames, ``uint8`` ``[T, H, W, 3]``."""
        torch, config = self._torch, self._vae.config
        shape = (1, config.z_dim, 1, 1, 1)
        mean = torch.tensor(config.latents_mean).view(shape).to(latents.dtype)
        deviation = 1.0 / torch.tensor(config.latents_std).view(shape).to(latents.dtype)
        with torch.no_grad():
            video = self._vae.decode(latents / deviation + mean, return_dict=False)[0]
        made = self._video.postprocess_video(video, output_type="np")[0]
        frames: Frames = (made * 255).round().astype("uint8")
        return frames


@serve.deployment(max_ongoing_requests=_MANY)
class Pipeline:
    """The ingress."""

    def __init__(
        self, encoder: DeploymentHandle, denoiser: DeploymentHandle, decoder: DeploymentHandle
    ) -> None:
        self._encoder, self._denoiser, self._decoder = encoder, denoiser, decoder

    async def __call__(self, request: GenerationRequest) -> Frames:
        """A chain of calls, of which only the last is waited for."""
        embeddings = self._encoder.encode.remote(request)
        latents = self._denoiser.denoise.remote(request, embeddings)
        frames: Frames = await self._decoder.decode.remote(latents)
        return frames


class RaySide:
    """A local Ray with the composition on it."""

    def __init__(self, setting: Setting) -> None:
        ray.init(
            num_cpus=setting.gpus + 1,  # each replica asks for one; the ingress as well
            include_dashboard=False,
            object_store_memory=_STORE_BYTES,
            configure_logging=True,
            logging_level=logging.ERROR,
            log_to_driver=False,
            _node_ip_address=_LOOPBACK,
        )
        serve.start(http_options={"location": "NoServer"})
        given = setting.config.models[0], setting.threads
        stages = [
            stage.options(num_replicas=count).bind(*given)
            for stage, count in zip((Encoder, Denoiser, Decoder), setting.ratio, strict=True)
        ]
        self._handle = serve.run(Pipeline.bind(*stages))
        logging.getLogger("ray.serve").setLevel(logging.ERROR)

    def answer(self, request: GenerationRequest) -> str:
        """Call the ingress and wait."""
        return frames_digest(self._handle.remote(request).result(timeout_s=LIMIT_S))

    def workers(self) -> set[int]:
        """Replicas of the three stages, by the titles that Ray gives its processes."""
        found = set()
        for process in psutil.Process().children(recursive=True):
            try:
                title = " ".join(process.cmdline())
            except psutil.Error:  # it has just ended
                continue
            if any(f"ServeReplica:default:{stage}" in title for stage in _STAGES):
                found.add(process.pid)
        return found

    def complete(self) -> bool:
        """Whether Serve says that the application runs, with all its replicas."""
        return all(
            deployment.status == "HEALTHY"
            for application in serve.status().applications.values()
            for deployment in application.deployments.values()
        )

    def close(self) -> None:
        """End Serve and Ray."""
        serve.shutdown()
        ray.shutdown()


_STAGES = ("Encoder", "Denoiser", "Decoder")
