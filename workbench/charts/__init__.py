"""Charts: one theme, one function per chart that returns ``(chart, frame)``, one way to save.

Importing this package imports Altair (about half a second); the command line does so only in the verbs that draw.
"""

from __future__ import annotations

from workbench.charts.renderer import enable
from workbench.charts.save import save
from workbench.charts.theme import figure

__all__ = ["enable", "figure", "save"]
