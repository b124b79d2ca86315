"""Pictures of the app: a scene is played once, in one app, and taken in every size and theme. Knows no scene.

The files are those of pytest-textual-snapshot, whose report (`snapshot_report.html`) shows what differs.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_textual_snapshot as plugin
from rich.console import Console
from syrupy.assertion import SnapshotAssertion
from syrupy.location import PyTestLocation
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

SIZES = {"120x36": (120, 36), "80x24": (80, 24), "60x20": (60, 20)}
THEMES = ("dspark-dark", "dspark-light", "ansi-dark")
EVERY = [(theme, size) for theme in THEMES for size in SIZES]
# A layout depends on the size and a colour on the theme: they hardly ever meet.
FEW = [(theme, size) for theme, size in EVERY if theme == THEMES[0] or size == "80x24"]
REST = [picture for picture in EVERY if picture not in FEW]
TURNS = 100
SOON = 1.0
"""Seconds: a timer that rings once and within these is waited for, a notification is not."""


class Files(plugin.SVGImageExtension):
    """One file a picture, `test_scene[size-theme].svg`, though one test takes them all."""

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: Any = 0) -> str:
        return f"{test_location.methodname}[{index}]"


def waiting(app: App[Any]) -> str:
    """What is still going on: "" when no message waits, no worker runs, and nothing is to be laid out or painted."""
    screen = app.screen
    nodes = [app, *screen.walk_children(with_self=True)]
    if any(not node._message_queue.empty() or node._next_callbacks for node in nodes):
        return "messages"
    if screen._layout_required or screen._repaint_required or screen._dirty_widgets or screen._callbacks:
        return "painting"
    if any(worker._thread_worker and not worker.is_finished for worker in app.workers):
        return "workers"
    soon = [t for node in nodes for t in node._timers if t._repeat == 0 and t._interval < SOON]
    return "timers" if any(t._task is not None and not t._task.done() for t in soon) else ""


async def settle(pilot: Pilot[Any]) -> None:
    """Wait until nothing is going on in the app. A blinking cursor would never end."""
    for field in pilot.app.screen.query(Input):
        field.cursor_blink = False
    for _ in range(TURNS):
        await pilot.pause()
        if not waiting(pilot.app):
            return
    raise AssertionError(f"the app does not come to rest: {waiting(pilot.app)}")


class Album:
    """The pictures of one test."""

    def __init__(
        self, snapshot: SnapshotAssertion, request: pytest.FixtureRequest, wanted: Sequence[tuple[str, str]]
    ) -> None:
        self._wanted = wanted
        self._snapshot = snapshot.use_extension(Files)
        self._node = request.node
        self._different: list[str] = []

    @asynccontextmanager
    async def scene(
        self, app: App[Any], name: str = "", sizes: Sequence[str] = tuple(SIZES)
    ) -> AsyncIterator[Pilot[Any]]:
        """The app at the first size; what it shows when the block ends is taken in these sizes, in several themes."""
        async with app.run_test(size=SIZES[sizes[0]], notifications=True, tooltips=True) as pilot:
            yield pilot
            await settle(pilot)
            app.clear_notifications()
            for theme, size in (picture for picture in self._wanted if picture[1] in sizes):
                app.theme = theme
                await pilot.resize_terminal(*SIZES[size])
                await settle(pilot)
                picture = app.export_screenshot(title=app.title, simplify=True)
                self._compare("-".join(part for part in (name, size, theme) if part), picture)
        assert not self._different, f"look at snapshot_report.html: {self._different}"

    def _compare(self, name: str, picture: str) -> None:
        same = self._snapshot(name=name) == picture
        if not same:
            self._different.append(name)
        self._report(name, picture, same)

    def _report(self, name: str, picture: str, same: bool) -> None:
        """What the plugin's report is made of, which counts on one picture a test."""
        path, line, _ = self._node.reportinfo()
        title = f"{self._node.originalname}[{name}]"
        console = Console(legacy_windows=False, force_terminal=True)
        app = plugin.PseudoApp(plugin.PseudoConsole(console.legacy_windows, console.size))
        before = self._snapshot.executions[self._snapshot.num_executions - 1].final_data
        said = inspect.getdoc(self._node.function) or ""
        data = (same, str(before), picture, app, path, line, title, said, "", before is not None)
        node = SimpleNamespace(reportinfo=lambda: (path, line, title))
        plugin.node_to_report_path(node).write_bytes(pickle.dumps(data))
