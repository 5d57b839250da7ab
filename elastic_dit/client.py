"""The client: prompts in, futures of videos and images out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import dask
import distributed

from elastic_dit.catalog import ModelCard
from elastic_dit.cluster.connection import (
    CONNECTION_ERRORS,
    DaskClient,
    address_in,
    connection_error,
    has_default_client,
)
from elastic_dit.cluster.launch.bootstrap import install_control
from elastic_dit.cluster.listener import Listener, call_control
from elastic_dit.cluster.messages import FENCE_OP
from elastic_dit.cluster.reports import read_report
from elastic_dit.cluster.submission import portable
from elastic_dit.config import Config
from elastic_dit.dashboards.link import page_link
from elastic_dit.errors import ClusterError, ConfigError
from elastic_dit.future import GenerationFuture
from elastic_dit.input_image import InputImage
from elastic_dit.jobs import Jobs
from elastic_dit.metrics.tally import Readings
from elastic_dit.request import GenerationRequest, new_request_id

__all__ = ["Client"]

_CONNECTIONS = 64
"""Connections to engines that a client keeps. Of those whose engine has died it does not hear:
they stay, a file each, until so many are open."""


class Client(Jobs):
    """A connection to a cluster that generates.

    Parameters
    ----------
    target : str, cluster, or distributed.Client, optional
        Address of a Dask scheduler, a Dask cluster object such as `LocalElasticCluster`, or a
        connected Dask client, which then stays the caller's to close; by default the setting
        ``scheduler-address`` of Dask.
    scheduler_file : path-like, optional
        File written by ``dask scheduler --scheduler-file``, in place of `target`.
    security : distributed.Security, optional
        For TLS.
    config : Config, optional
        Of which the section ``client`` counts, the waits. What the cluster serves and how is
        up to those who start its engines.
    asynchronous : bool
        Whether methods return coroutines, for use inside an event loop:
        ``async with Client(..., asynchronous=True) as client``.

    Raises
    ------
    SchedulerUnreachable
        Where nothing answers within ``config.client.connect_timeout_s``, or the scheduler file
        holds no address.
    ConfigError
        Where `target` is none of these, no address, or one for TLS without certificates.

    Notes
    -----
    It becomes Dask's default client, which `distributed.wait` and ``as_completed`` need, unless
    there is one.

    Examples
    --------
    >>> with Client("tcp://10.0.0.1:8786") as client:  # doctest: +SKIP
    ...     future = client.submit("a red circle moving left", width=64, height=64)
    ...     future.result().save("circle.mp4")
    """

    def __init__(
        self,
        target: Any = None,
        *,
        scheduler_file: str | Path | None = None,
        security: distributed.Security | None = None,
        config: Config | None = None,
        asynchronous: bool = False,
    ) -> None:
        self.config = config or Config()
        if scheduler_file is not None:
            target = address_in(Path(scheduler_file))
        elif target is None:
            target = dask.config.get("scheduler-address", None)
        self._owned = not isinstance(target, distributed.Client)
        if self._owned and not isinstance(target, str) and not hasattr(target, "scheduler_address"):
            raise ConfigError("target", target, "the address of a Dask scheduler, or a cluster")
        self._wanted = str(getattr(target, "scheduler_address", target))
        self._dask = self._open(target, security, asynchronous) if self._owned else target
        self._listener = _listener_of(self._dask)
        if not self.asynchronous:
            self._sync(self._start())

    def _open(self, target: Any, security: Any, asynchronous: bool) -> distributed.Client:
        try:
            return DaskClient(
                target,
                security=security,
                asynchronous=asynchronous,
                timeout=self.config.client.connect_timeout_s,
                set_as_default=not has_default_client(),
                direct_to_workers=self.config.client.direct_results,
                connection_limit=_CONNECTIONS,
            )
        except CONNECTION_ERRORS as error:
            raise self._unreachable(error) from None

    # -- life
    @property
    def asynchronous(self) -> bool:
        """Whether methods return coroutines."""
        return bool(self._dask.asynchronous)

    @property
    def dask(self) -> distributed.Client:
        """The Dask client beneath."""
        return self._dask

    @property
    def dashboard_link(self) -> str:
        """The live page; empty where the scheduler has no HTTP server (docs/dashboard.md)."""
        return page_link(self._dask.dashboard_link)

    def __repr__(self) -> str:
        return f"<elastic_dit.Client: {self._wanted}, {self._dask.status}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self._connect().__await__()

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def close(self) -> Any:
        """Disconnect; what only this client waits for is cancelled, where no journal keeps it."""
        if self._owned:
            return self._dask.close()
        return _nothing() if self.asynchronous else None

    # -- work
    def submit(
        self,
        prompt: str,
        *,
        model: str | None = None,
        negative_prompt: str | None = None,
        width: int | None = None,
        height: int | None = None,
        num_frames: int | None = None,
        fps: int | None = None,
        num_inference_steps: int | None = None,
        guidance_scale: float | None = None,
        seed: int | None = None,
        priority: int | None = None,
        deadline_s: float | None = None,
        request_id: str | None = None,
        image: Any = None,
        owner: str | None = None,
    ) -> Any:
        """Ask for one video or image.

        Parameters
        ----------
        prompt : str
            What to show.
        model : str, optional
            Name of a served model; the cluster's first by default.
        negative_prompt, width, height, num_frames, fps, num_inference_steps, guidance_scale
            As in `GenerationRequest`; None takes the model's default.
        seed : int, optional
            Drawn, and told in ``future.request``, if not given.
        priority, deadline_s : optional
            For dispatch policies that honour them.
        request_id : str, optional
            Makes the submission idempotent: the same id and body share one job.
        image : PIL.Image.Image, path-like, str or bytes, optional
            Picture to start from, for models that need one: pixels, a PNG, JPEG or WebP file
            here, or the content of one. It is scaled and cut to the video's size, which follows
            its proportions where neither width nor height is given.
        owner : str, optional
            On whose behalf, for limits per client and for `requests`; this connection by default.

        Returns
        -------
        GenerationFuture

        Raises
        ------
        InvalidRequest
            Naming field, value and what is allowed; nothing has run.
        UnknownModel
            Listing the models that are served.
        RequestConflict
            Where the id is taken by another body.
        AdmissionRefused
            Where too much waits already, with the time after which to try again.
        NotReady
            Where no engine joins within ``config.client.ready_timeout_s``.
        """
        options = {
            name: value for name, value in locals().items() if name != "self" and value is not None
        }
        return self._sync(self._submit_one(options))

    def map(self, prompts: Iterable[str], **options: Any) -> Any:
        """Ask for one video or image per prompt, with the same options for each.

        Parameters
        ----------
        prompts : iterable of str
        **options
            As for `submit`, but `request_id`.

        Returns
        -------
        list of GenerationFuture
            In the order of `prompts`.

        Raises
        ------
        ElasticDitError
            As `submit`; then none of the prompts was accepted.
        """
        if "request_id" in options:
            raise TypeError("map() takes no request_id: it would be the same for every prompt")
        if isinstance(prompts, str):
            raise TypeError("map() takes a list of prompts; submit() takes one")
        return self._sync(self._map(list(prompts), options))

    def gather(self, futures: Iterable[GenerationFuture]) -> Any:
        """Results of many futures, in their order; raises the first error."""
        return self._sync(self._gather(list(futures)))

    def models(self) -> Any:
        """Cards of the models served now, the default first: a tuple of `ModelCard`."""
        return self._sync(self._models())

    def status(self) -> Any:
        """Requests, queues and GPUs as plain data: see `elastic_dit.cluster.plane.status`."""
        return self._sync(self._call("elastic_dit_status"))

    def metrics(self) -> Any:
        """What the control plane counts: `elastic_dit.metrics.tally.Readings`."""
        return self._sync(self._metrics())

    # -- the same, on the event loop
    async def _connect(self) -> Self:
        try:
            await self._dask
        except CONNECTION_ERRORS as error:
            await self._dask.close()
            raise self._unreachable(error) from None
        await self._start()
        return self

    async def _start(self) -> None:
        limit_s = self.config.client.connect_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await install_control(self._dask.scheduler)
            self._listener.start()
        except BaseException as error:
            if self._owned:
                await self._dask.close()
            if isinstance(error, OSError | TimeoutError):
                raise self._unreachable(error) from None
            raise

    async def _submit_one(self, options: dict[str, Any]) -> GenerationFuture:
        [future] = await self._submit([await _with_picture(options)])
        return future

    async def _map(self, prompts: list[str], options: dict[str, Any]) -> list[GenerationFuture]:
        options = await _with_picture(options)
        return await self._submit([{**options, "prompt": prompt} for prompt in prompts])

    async def _submit(self, submissions: list[dict[str, Any]]) -> list[GenerationFuture]:
        is_named = any("request_id" in options for options in submissions)
        submissions = [
            portable({"request_id": new_request_id(), **options}) for options in submissions
        ]
        if is_named:
            # Futures of the same id that were just dropped go first.
            await asyncio.sleep(0)
        # Before the submission, so that an early end finds its future here.
        futures = [
            GenerationFuture(options["request_id"], self._dask, self._listener)
            for options in submissions
        ]
        waits = self.config.client
        answer_timeout_s = waits.ready_timeout_s + waits.submit_timeout_s
        try:
            reply = await self._call(
                "elastic_dit_submit",
                limit_s=answer_timeout_s + waits.submit_timeout_s,
                submissions=submissions,
                client=self._dask.id,
                ready_timeout_s=waits.ready_timeout_s,
                answer_timeout_s=answer_timeout_s,
                fence=self._fence() if is_named else None,
            )
        except BaseException:
            for future in futures:
                future.release()
            raise
        for future, receipt in zip(futures, reply["accepted"], strict=True):
            request = GenerationRequest.model_validate(receipt["request"])
            future.begin(request, read_report(receipt["report"]))
        return futures

    def _fence(self) -> str | None:
        """Mark the stream on which Dask tells of dropped futures, perhaps of the same id."""
        if self._dask.status != "running":
            return None
        token = new_request_id()
        self._dask._send_to_scheduler({"op": FENCE_OP, "token": token})
        return token

    async def _gather(self, futures: list[GenerationFuture]) -> list[Any]:
        return list(await asyncio.gather(*(future._result() for future in futures)))

    async def _models(self) -> tuple[ModelCard, ...]:
        reply = await self._call("elastic_dit_models")
        return tuple(ModelCard.model_validate(card) for card in reply["models"])

    async def _metrics(self) -> Readings:
        return Readings.from_wire(await self._call("elastic_dit_metrics"))

    async def _call(self, operation: str, limit_s: float | None = None, **arguments: Any) -> Any:
        if limit_s is None:
            limit_s = self.config.client.submit_timeout_s
        return await call_control(self._dask, operation, limit_s, **arguments)

    def _sync(self, work: Coroutine[Any, Any, Any]) -> Any:
        return work if self.asynchronous else self._dask.sync(lambda: work)

    def _unreachable(self, error: BaseException) -> ClusterError | ConfigError:
        return connection_error(self._wanted, error, self.config.client.connect_timeout_s)


async def _with_picture(options: dict[str, Any]) -> dict[str, Any]:
    """Options with their picture read and checked, where there is one: not on the loop."""
    image = options.get("image")
    if image is None:
        return options
    return {**options, "image": await asyncio.to_thread(InputImage.of, image)}


_listeners: WeakKeyDictionary[distributed.Client, Listener] = WeakKeyDictionary()


def _listener_of(dask: distributed.Client) -> Listener:
    """One per Dask client: a topic has a single handler there."""
    if dask not in _listeners:
        _listeners[dask] = Listener(dask)
    return _listeners[dask]


async def _nothing() -> None:
    """What closing a borrowed client takes."""
