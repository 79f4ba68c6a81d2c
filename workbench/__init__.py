"""Where did the time go, what would another scheduler have done, and is that difference real?

A workbench for people who serve omni-modal models through a graph of stages.
"""

from __future__ import annotations

__version__ = "0.1.0"
