"""States of a request and of a task, and the terminal states with their names."""

from __future__ import annotations

from workbench.schema.enums import OUTCOME_STATUS

# Request: the controller's view. Every terminal state passes through the drain, the good one too, so that no resource
# has a way out that is used by failures alone, or by successes alone.
NEW, WAITING_PHASE, RUNNING_PHASE, DRAINING, CLOSED_PHASE = range(5)
PHASES = ("new", "waiting", "running", "draining", "closed")

# What follows a drain.
CLOSE, AGAIN = range(2)

# Outcomes; 0 stands for none yet.
OK, ERROR, CANCELLED, REJECTED, TIMEOUT = (
    1 + OUTCOME_STATUS.index(name) for name in ("ok", "error", "cancelled", "rejected", "timeout")
)

# Stage's view of a request.
IDLE, OPEN, STOPPING, STOPPED = range(4)
STATUSES = ("idle", "open", "stopping", "stopped")

# Controller's view of a stage that it wants to stop.
FREE, WANTED, CONFIRMED = range(3)

# News for the client.
NO_NEWS, UNTOLD, TOLD = range(3)
