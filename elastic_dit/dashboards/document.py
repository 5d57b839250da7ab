"""One viewer's document: two drawings, the sources of everything else, and a template around."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from bokeh.models import CustomJS
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.components.scheduler import env
from distributed.utils import log_errors

from elastic_dit.dashboards.components import PANELS, Panel, StageQueues, Timeline
from elastic_dit.dashboards.desk import DashboardDesk

__all__ = ["fill_document"]


@log_errors  # type: ignore[untyped-decorator]
def fill_document(
    desk: DashboardDesk, template_variables: dict[str, Any], doc: Any, update_ms: int
) -> None:
    """Make the page for somebody who has just opened it.

    Parameters
    ----------
    desk : DashboardDesk
    template_variables : dict
        What Dask's templates need.
    doc : bokeh.document.Document
    update_ms : int
        Milliseconds between two updates.
    """
    queues, timeline = StageQueues(desk), Timeline(desk)
    panels = {name: Panel(desk, name) for name in PANELS}
    parts: list[StageQueues | Timeline | Panel] = [queues, timeline, *panels.values()]
    for part in parts:
        part.update()
        add_periodic_callback(doc, part, update_ms)
    sources = {name: panel.source for name, panel in panels.items()}
    drawings = {"queues": queues.root, "timeline": timeline.root}
    start = CustomJS(args={"sources": sources, "drawings": drawings}, code=_START)
    doc.js_on_event("document_ready", start)
    timeline.root.tags = list(sources.values())  # what no drawing refers to is not kept in step
    doc.title = "elastic-dit"
    for drawing in drawings.values():
        doc.add_root(drawing)
    doc.template = _template()
    doc.template_variables.update(template_variables)


_START = "window.elasticDit.start(sources, drawings)"


@cache
def _template() -> Any:
    """The page around the drawings; style and script are in it, so that no prefix matters."""
    folder = files("elastic_dit.dashboards") / "static"
    page, style, script = (
        (folder / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    return env.from_string(page.replace("/* STYLE */", style).replace("/* SCRIPT */", script))
