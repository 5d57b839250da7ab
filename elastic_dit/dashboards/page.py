"""Mounts the page and its JSON twin on a Dask scheduler's own HTTP server."""

from __future__ import annotations

import re
from typing import Any

from tornado.ioloop import IOLoop
from tornado.web import RedirectHandler, RequestHandler

from elastic_dit.dashboards.desk import DashboardDesk
from elastic_dit.dashboards.link import JSON_PAGE, PAGE

__all__ = ["show_on"]

UPDATE_MS = 500
"""Milliseconds between two updates of an open page."""


def show_on(scheduler: Any, desk: DashboardDesk) -> None:
    """Show the page on a scheduler's HTTP server, and link it from the bar of Dask's own pages.

    Where the scheduler has no dashboard there is the JSON twin alone, and the page leads to it.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        A running one.
    desk : DashboardDesk
    """
    twin = (rf"(?:/.*)?/{re.escape(JSON_PAGE)}", _Twin, {"desk": desk})
    scheduler.http_application.add_handlers(".*", [twin])
    dashboard = _dashboard(scheduler)
    if dashboard is None:
        instead = (rf"(?:/.*)?/{PAGE}", RedirectHandler, {"url": JSON_PAGE, "permanent": False})
        scheduler.http_application.add_handlers(".*", [instead])
        return
    from distributed.dashboard.core import BokehApplication
    from distributed.dashboard.scheduler import template_variables

    from elastic_dit.dashboards.document import fill_document

    shown = template_variables(scheduler)  # memoised: the dict behind every page's bar of links
    if PAGE not in shown["pages"]:
        shown["pages"].insert(0, PAGE)
    # Dask calls it with the scheduler; the desk is all it needs.
    page = BokehApplication(
        {f"/{PAGE}": lambda _, extra, doc: fill_document(desk, extra, doc, UPDATE_MS)},
        scheduler,
        prefix=dashboard.prefix,
        template_variables=shown,
    )
    scheduler.http_application.add_application(page)
    page.initialize(IOLoop.current())
    page.start()


def _dashboard(scheduler: Any) -> Any:
    """Dask's own dashboard there, a Bokeh application, if it shows one."""
    pages = (app for app in scheduler.http_application.applications if hasattr(app, "app_paths"))
    return next((app for app in pages if "/status" in app.app_paths), None)


class _Twin(RequestHandler):  # type: ignore[misc]
    def initialize(self, desk: DashboardDesk) -> None:
        self._desk = desk

    def get(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.write(self._desk.look().to_json())
