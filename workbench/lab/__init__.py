"""Recorded runs as objects, for notebooks and the command line: ``workbench.open(PATH)``."""

from __future__ import annotations

from workbench.lab.comparison import Comparison
from workbench.lab.run import Run, open

__all__ = ["Comparison", "Run", "open"]
