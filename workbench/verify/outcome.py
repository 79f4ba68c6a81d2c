"""What an exploration found: its size, its verdict, and the shortest way to the first violation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.errors import UsageError
from workbench.verify.interface import MAX_ACTIONS, MAX_CODE

VERDICTS = ("holds", "violated", "limit")
KINDS = ("step", "state", "deadlock", "no-way-out", "only-by-timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """Result of one exploration. Two are equal if everything but times and memory is.

    Attributes
    ----------
    states, transitions : int
        Distinct states found (symmetric ones once) and steps performed; up to the violation if there is one.
    levels : tuple of int
        States per distance from the initial state; they sum to `states`.
    goals : int
        Expanded states that are goals; 0 in a complete exploration without liveness means that nothing ever ends.
    fired : mapping of int to int
        Times that each action was performed; a code that is missing was never enabled.
    verdict : str
        ``holds``, ``violated``, or ``limit`` if the limit of states came first (then liveness was not checked).
    kind : str
        ``step``, ``state``, ``deadlock``, ``no-way-out`` or ``only-by-timeout``; empty unless violated.
    code : int
        Code of the violated property; 0 for the last three kinds and if none is violated.
    trace : tuple of int
        Actions from the initial state to the violation, the fewest possible; between equals, the first in the order of
        the world's actions. It ends with the step that broke the property, or in the state that is wrong.
    seconds, cpu_seconds, compile_seconds : float
        Wall and processor time of the search, and wall time of compiling before it (0 if interpreted).
    bytes_per_state : float
        Memory held at the end of the search, liveness included, per state; 0 if interpreted.
    """

    states: int
    transitions: int
    levels: tuple[int, ...]
    goals: int
    fired: Mapping[int, int]
    verdict: str
    kind: str = ""
    code: int = 0
    trace: tuple[int, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    cpu_seconds: float = field(default=0.0, compare=False)
    compile_seconds: float = field(default=0.0, compare=False)
    bytes_per_state: float = field(default=0.0, compare=False)

    @property
    def depth(self) -> int:
        """Largest distance of a state from the initial one, in steps."""
        return len(self.levels) - 1

    def __str__(self) -> str:
        """One line: verdict, length of the counterexample, size, speed."""
        verdict = self.verdict
        if self.kind:
            named = f"property {self.code} of a {self.kind}" if self.code else self.kind
            verdict = f"violated ({named}) after {len(self.trace)} steps"
        rate = f", {self.states / self.seconds:,.0f} states/s" if self.seconds > 0 else ""
        return f"{verdict}; {self.states:,} states, {self.transitions:,} transitions, depth {self.depth}{rate}"


def out_of_range(index: int, value: int, action: int) -> UsageError:
    """The error of a state that does not fit in bytes; `action` 0 stands for the initial state."""
    return UsageError(
        "state values from -128 to 127, since a state is stored as bytes",
        f"{value} at index {index} {f'after action {action}' if action else 'of the initial state'}",
        fix="Take a smaller window, fewer chunks or larger units, unless a change lets the number grow without end.",
    )


def too_many(count: int) -> UsageError:
    """The error of a state with more actions than the world may offer."""
    return UsageError(f"at most {MAX_ACTIONS} enabled actions", str(count), where="actions")


def no_code(action: int) -> UsageError:
    """The error of an action whose code is out of range."""
    return UsageError(f"action codes from 1 to {MAX_CODE}", str(action), where="actions")
