"""Why a task was chosen: the terms that made its score, what stage-local order would have done, and who came next.

The explanation calls the rules that decided, so it cannot tell another story than the one that happened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from workbench.control.priorities import Priority, preset
from workbench.control.priority import NO_SIBLINGS, SIBLINGS, choose, class_of, contribution, score
from workbench.control.ranges import UNBOUNDED
from workbench.control.signals import AGE, PATH, REQUEST, SIGNALS, SLACK, TASK
from workbench.errors import UsageError
from workbench.schema.enums import CONTROL_MODE
from workbench.schema.tables import DECISION
from workbench.twin import Vector
from workbench.units import format_ns

AGING_NAME = "aging"
# What told the chosen task and the runner-up apart.
GROUNDS = ("only candidate", "class", "score", "sibling path", "order of arrival")


@dataclass(frozen=True, slots=True)
class Decision:
    """One evaluation of a priority over the candidates of a stage.

    Attributes
    ----------
    rule : str
        Name of the priority.
    candidates : int
        Tasks it could choose from, at least 1.
    chosen, static : int
        Positions of its choice and of what ``stage-local`` would have taken.
    chosen_request, chosen_task, static_request : int
        Their numbers.
    terms : tuple of (str, float)
        Contribution of each term, aging last. Added up from left to right they are `score`, bit for bit.
    score : float
        Score of the chosen task.
    runner_up : int or None
        Position of what would have run if the chosen task were absent; None if it was alone.
    runner_up_request : int or None
        Its request.
    margin : float or None
        Score of the chosen minus score of the runner-up; negative where a class or the order of siblings decided.
    ground : str
        One of `GROUNDS`.
    facts : tuple of int or None
        Age, remaining path and slack of the chosen task in ns, None where unknown.
    """

    rule: str
    candidates: int
    chosen: int
    static: int
    chosen_request: int
    chosen_task: int
    static_request: int
    terms: tuple[tuple[str, float], ...]
    score: float
    runner_up: int | None
    runner_up_request: int | None
    margin: float | None
    ground: str
    facts: tuple[int | None, ...]

    def row(
        self,
        *,
        at_ns: int,
        cost_ns: int,
        mode: str,
        stage: str | None = None,
        replica: int | None = None,
        fallback_reason: str | None = None,
    ) -> dict[str, str | int | None]:
        """The row of the table ``decision``, in the order of its columns.

        `terms` is JSON from name to contribution; `cost_ns` is the time the evaluation took, measured by the caller.
        """
        if mode not in CONTROL_MODE:
            raise UsageError(f"a mode among {list(CONTROL_MODE)}", repr(mode))
        values: dict[str, str | int | None] = {
            "at_ns": at_ns,
            "stage": stage,
            "replica": replica,
            "mode": mode,
            "rule": self.rule,
            "candidates": self.candidates,
            "chosen_request": self.chosen_request,
            "static_request": self.static_request,
            "terms": json.dumps(dict(self.terms)),
            "cost_ns": cost_ns,
            "fallback_reason": fallback_reason,
        }
        return {name: values[name] for name in DECISION.names}

    def text(self) -> str:
        """The decision in one paragraph."""
        age, path, slack = self.facts
        known = [f"age {format_ns(age)}"]
        known += [] if path is None else [f"{format_ns(path)} of path left"]
        known += [] if slack is None else [f"slack {format_ns(slack)}"]
        parts = [f"{name} {value:+.3g}" for name, value in self.terms if value != 0] or ["all terms 0"]
        lines = [
            f"{self.rule} chose request {self.chosen_request} (task {self.chosen_task}; {', '.join(known)}) "
            f"among {self.candidates}: score {self.score:.4g} = {', '.join(parts)}."
        ]
        if self.margin is None:
            lines.append("It was the only candidate.")
        else:
            ahead = f"ahead by {self.margin:.3g}" if self.margin >= 0 else f"though {-self.margin:.3g} behind in score"
            lines.append(f"Next would have been request {self.runner_up_request}, decided by {self.ground}, {ahead}.")
        if self.static == self.chosen:
            lines.append("Stage-local order would have done the same.")
        elif self.static_request == self.chosen_request:
            lines.append("Stage-local order would have taken another task of the same request.")
        else:
            lines.append(f"Stage-local order would have chosen request {self.static_request}.")
        return " ".join(lines)


@lru_cache(maxsize=1)
def _static() -> Priority:
    return preset("stage-local")


def explain(priority: Priority, signals: Sequence[int], scale: int) -> Decision:
    """Evaluate a priority once more and keep everything that decided.

    Parameters
    ----------
    priority : Priority
        The rule.
    signals : sequence of int
        Records of the candidates, `SIGNALS` integers each, built at the rule's information class.
    scale : int
        Unit of time of the decision in ns, at least 1.

    Raises
    ------
    UsageError
        No candidate, a vector that is not whole records, or a scale below 1.
    """
    vector: Vector = [int(value) for value in signals]
    count = len(vector) // SIGNALS
    if count < 1 or len(vector) != count * SIGNALS:
        raise UsageError(f"one or more records of {SIGNALS} integers", f"{len(vector)} integers", where="signals")
    if scale < 1:
        raise UsageError("a scale of at least 1 ns", repr(scale))
    spec, weights = priority.spec, priority.weights
    chosen = choose(spec, weights, vector, 0, count, scale)
    a = chosen * SIGNALS
    static = choose(_static().spec, _static().weights, vector, 0, count, scale)
    names = [*(term.name for term in priority.terms), AGING_NAME]
    terms = tuple((name, contribution(spec, weights, vector, a, scale, at)) for at, name in enumerate(names))
    its_score = score(spec, weights, vector, a, scale)
    runner_up, margin, ground = None, None, GROUNDS[0]
    if count > 1:
        runner_up = choose(spec, weights, vector[:a] + vector[a + SIGNALS :], 0, count - 1, scale)
        runner_up += runner_up >= chosen
        b = runner_up * SIGNALS
        margin = its_score - score(spec, weights, vector, b, scale)
        alike = [*spec[:SIBLINGS], NO_SIBLINGS, *spec[SIBLINGS + 1 :]]
        if class_of(spec, vector, a) != class_of(spec, vector, b):
            ground = "class"
        elif choose(alike, weights, vector, 0, count, scale) != chosen:
            ground = "sibling path"
        else:
            ground = "score" if margin != 0 else "order of arrival"
    path, slack = vector[a + PATH], vector[a + SLACK]
    return Decision(
        rule=priority.name,
        candidates=count,
        chosen=chosen,
        static=static,
        chosen_request=vector[a + REQUEST],
        chosen_task=vector[a + TASK],
        static_request=vector[static * SIGNALS + REQUEST],
        terms=terms,
        score=its_score,
        runner_up=runner_up,
        runner_up_request=None if runner_up is None else vector[runner_up * SIGNALS + REQUEST],
        margin=margin,
        ground=ground,
        facts=(vector[a + AGE], None if path < 0 else path, None if slack == UNBOUNDED else slack),
    )
