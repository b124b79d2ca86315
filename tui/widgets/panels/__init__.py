"""The side panels, in the order in which they stand. A new one is a file here and a row in this table."""

from __future__ import annotations

from tui.widgets.panels import acceptance, calibration, drafters, positions, prefix, rate
from tui.widgets.panels.base import Panel

PANELS: tuple[Panel, ...] = (
    acceptance.PANEL,
    rate.PANEL,
    positions.PANEL,
    drafters.PANEL,
    prefix.PANEL,
    calibration.PANEL,
)
