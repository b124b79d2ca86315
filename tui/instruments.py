"""What the program shows of itself: panels as charts, the calibration, doctor, the log. A mixin of the app."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from textual import work
from textual.message import Message

from engine.errors import Cancelled
from tui.engine_port import Progress
from tui.panels import Figures
from tui.reports import doctor_text, log_text
from tui.screens.charts import ChartScreen
from tui.screens.text import TextScreen
from tui.widgets.side_bar import PANELS, PanelView
from tui.widgets.task_row import TaskRow

if TYPE_CHECKING:
    from textual.app import App

    from tui.controller import Controller

    class Base(App[int]):
        async def screen_command(self, name: str, words: str) -> str | None: ...
else:
    Base = object

log = logging.getLogger("dspark.tui")


class Instruments(Base):
    """Needs the attributes below from the app."""

    if TYPE_CHECKING:
        controller: Controller
        job: Any

        def say(self, text: str, severity: Any = "information") -> None: ...
        def figures(self) -> Figures: ...
        def show_figures(self) -> None: ...
        def start_race(self, words: str) -> str | None: ...
        def model_command(self, words: str) -> Any: ...

    _measuring: threading.Event | None = None
    _charted = "acceptance"

    class Measuring(Message):
        """Calibrating went on; posted from the model thread."""

        def __init__(self, what: str, done: float) -> None:
            super().__init__()
            self.what, self.done = what, done

    async def screen_command(self, name: str, words: str) -> str | None:
        match name:
            case "race":
                return self.start_race(words)
            case "model":
                return await self.model_command(words)
            case "chart":
                return self.open_chart(words or self._charted)
            case "calibrate":
                return self.calibrate(words)
            case "doctor":
                self.action_doctor()
            case "log":
                self.action_log()
            case _:
                return await super().screen_command(name, words)
        return None

    # Charts -----------------------------------------------------------------------------------------------------------

    def action_charts(self) -> None:
        """The panel that has the focus, else the one looked at last."""
        focused = self.focused
        self.open_chart(focused.panel.id if isinstance(focused, PanelView) else self._charted)

    def open_chart(self, name: str) -> str | None:
        ids = [panel.id for panel in PANELS]
        found = next((id for id in ids if id.startswith(name.lower())), None)
        if found is None:
            return f"There is no panel {name}; there are {', '.join(ids)}."
        screen = ChartScreen(PANELS, found, self.figures())

        def left(_: None) -> None:
            self._charted = screen.panel.id

        self.push_screen(screen, left)
        return None

    def on_panel_view_chosen(self, event: PanelView.Chosen) -> None:
        self.open_chart(event.id)

    def show_chart(self, figures: Figures) -> None:
        if isinstance(self.screen, ChartScreen):
            self.screen.show(figures)

    # Calibration ------------------------------------------------------------------------------------------------------

    def calibrate(self, words: str) -> str | None:
        """Measure this machine again, or stop doing so. A sentence says why not."""
        if words == "stop":
            if self._measuring is None:
                return "Nothing is being measured."
            self._measuring.set()
            return None
        calibrator: Any = getattr(self.controller.engine, "calibrator", None)
        if calibrator is None or self.controller.busy or self.job is not None:
            return "The model is not loaded, or busy; try again in a moment."
        if self._measuring is not None:
            return "This machine is being measured; /calibrate stop stops that."
        self._measuring = threading.Event()
        self.post_message(self.Measuring("measuring this machine", 0.0))
        self._measure(calibrator, self._measuring)
        return None

    def on_instruments_measuring(self, event: Measuring) -> None:
        if self._measuring is not None:
            progress = Progress(f"calibrating: {event.what}", round(1000 * event.done), 1000)
            self.query_one(TaskRow).show(progress, "/calibrate stop stops it")

    @work(thread=True, group="measure", exit_on_error=False)
    def _measure(self, calibrator: Any, stop: threading.Event) -> None:
        def progress(what: str, done: float) -> None:
            self.post_message(self.Measuring(what, done))

        try:
            calibrator.measure(force=True, progress=progress, stop=lambda: self._exit or stop.is_set())
            text = ""
        except Cancelled:
            text = "Measuring was stopped; what was known before still holds."
        except Exception as error:  # the edge of measuring: the screen says it as a sentence
            log.exception("measuring failed")
            text = f"Measuring failed: {error}"
        self.call_from_thread(self._measured_now, text)

    def _measured_now(self, text: str) -> None:
        self._measuring = None
        self.query_one(TaskRow).show(None)
        self.show_figures()
        view: Any = self.figures().calibration
        if not text and view is not None:
            knee, rate = getattr(view, "knee", None), getattr(view, "rate", 0.0)
            text = f"Measured: knee {knee or 'none'}, draft length {getattr(view, 'cap', 0)}, about {rate:.1f} tok/s."
        self.say(text or "Measured.")

    # Reading ----------------------------------------------------------------------------------------------------------

    def action_doctor(self) -> None:
        """What `dspark-chat doctor` prints, examined now."""
        screen = TextScreen("Doctor", "Examining this machine …")
        self.push_screen(screen)
        self._examine(screen)

    @work(thread=True, group="doctor", exit_on_error=False)
    def _examine(self, screen: TextScreen) -> None:
        try:
            text = doctor_text(self.controller.config, self.controller.engine)
        except Exception as error:  # a broken machine is what it is for: the screen says it as a sentence
            log.exception("the examination failed")
            text = f"The examination failed: {error}"
        self.call_from_thread(screen.call_later, screen.show, text)  # after it is composed

    def action_log(self) -> None:
        self.push_screen(TextScreen("Log", log_text(), at_end=True))
