"""One viewer's document: two drawings, the sources of everything else, and a template around."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from bokeh.models import CustomJS
from distributed.dashboard.components import DashboardComponent, add_periodic_callback
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
    parts = _Parts(desk)
    parts.update()
    add_periodic_callback(doc, parts, update_ms)
    timeline = parts.timeline.root
    timeline.tags = list(parts.sources.values())  # what no root refers to is not kept in step
    drawings = {"queues": parts.queues.root, "timeline": timeline}
    start = CustomJS(args={"sources": parts.sources, "drawings": drawings}, code=_START)
    doc.js_on_event("document_ready", start)
    doc.title = "elastic-dit"
    for drawing in drawings.values():
        doc.add_root(drawing)
    doc.template = _template()
    doc.template_variables.update(template_variables)


class _Parts(DashboardComponent):  # type: ignore[misc]
    """All of it, so that everything a viewer sees is of the same board."""

    def __init__(self, desk: DashboardDesk) -> None:
        self.queues, self.timeline = StageQueues(desk), Timeline(desk)
        self._panels = {name: Panel(desk, name) for name in PANELS}
        self.sources = {name: panel.source for name, panel in self._panels.items()}

    def update(self) -> None:
        """Bring every part in line."""
        self.queues.update()
        self.timeline.update()
        for panel in self._panels.values():
            panel.update()


_START = "window.elasticDit.start(sources, drawings)"


@cache
def _template() -> Any:
    """The page around the drawings; style and script are in it, so that no prefix matters."""
    folder = files("elastic_dit.dashboards") / "static"
    page, style, script = (
        (folder / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    return env.from_string(page.replace("/* STYLE */", style).replace("/* SCRIPT */", script))
