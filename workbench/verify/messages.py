"""The messages of one run of the explorer's world: who sent what to whom in which step, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from workbench.control import effects
from workbench.control.effects import AT_EPOCH, EFFECT_SIZE, KIND, WHERE, WHO, A, C
from workbench.verify import wires
from workbench.verify.explorer import Step
from workbench.verify.scenario import Scenario

CONTROLLER, CLIENT = "controller", "client"

# Actions that end a message's way: delivered, lost, delivered while a copy stays, or delivered before its time.
DELIVERED, LOST, COPIED, OVERTOOK = range(4)


@dataclass(slots=True)
class Message:
    """One message.

    Attributes
    ----------
    request : int
        Whom it concerns.
    source, target : str
        Stages, ``controller`` or ``client``.
    text : str
        What it says, in a few words.
    sent : int
        Number of the step that sent it, from 1.
    arrived : int or None
        Step in which it arrived or was lost; None: it is still on its way.
    lost : bool
        Whether it was lost.
    """

    request: int
    source: str
    target: str
    text: str
    sent: int
    arrived: int | None = None
    lost: bool = False


@dataclass(slots=True)
class _Wires:
    """Messages on each wire, in the order of the world."""

    on: dict[tuple[str, int, int], list[Message]] = field(default_factory=dict)
    ended: list[Message] = field(default_factory=list)

    def end(self, wire: tuple[str, int, int], step: int, how: int) -> None:
        line = self.on.setdefault(wire, [])
        at = 1 if how == OVERTOOK else 0
        if at >= len(line):
            return
        message = line[at]
        if how == COPIED:
            line[at] = Message(message.request, message.source, message.target, message.text, message.sent)
        else:
            del line[at]
        message.arrived, message.lost = step, how == LOST
        self.ended.append(message)

    def put(self, wire: tuple[str, int, int], message: Message, room: Callable[[], int]) -> None:
        """Append; where the world keeps fewer messages, the newest takes the place of the one before it."""
        line = self.on.setdefault(wire, [])
        line.append(message)
        while len(line) > max(room(), 1):
            del line[-2]


# Action -> (wire, how it ends).
_ENDS: dict[int, tuple[str, int]] = {
    wires.CONTROL: ("control", DELIVERED),
    wires.LOSE_CONTROL: ("control", LOST),
    wires.DUPLICATE_CONTROL: ("control", COPIED),
    wires.REPLY: ("reply", DELIVERED),
    wires.LOSE_REPLY: ("reply", LOST),
    wires.DUPLICATE_REPLY: ("reply", COPIED),
    wires.DATA: ("data", DELIVERED),
    wires.LOSE_DATA: ("data", LOST),
    wires.DUPLICATE_DATA: ("data", COPIED),
    wires.REORDER_DATA: ("data", OVERTOOK),
    wires.CREDIT: ("credit", DELIVERED),
    wires.LOSE_CREDIT: ("credit", LOST),
    wires.DUPLICATE_CREDIT: ("credit", COPIED),
    wires.REORDER_CREDIT: ("credit", OVERTOOK),
    wires.NOTICE_ARRIVES: ("notice", DELIVERED),
    wires.CANCEL_ARRIVES: ("cancel", DELIVERED),
}
_ONE_PLACE = ("notice", "cancel")


def messages(scenario: Scenario, steps: Sequence[Step]) -> list[Message]:
    """Every message of the run, by the step that sent it."""
    g, _ = scenario.vectors()
    plan = scenario.plan
    ways = _Wires()
    for number, step in enumerate(steps, start=1):
        action, r, place = (part(g, step.action) for part in (wires.action_of, wires.request_of, wires.place_of))
        if action in _ENDS:
            wire, how = _ENDS[action]
            ways.end((wire, r, 0 if wire in _ONE_PLACE else place), number, how)
        elif action == wires.RECONNECT:
            for e, edge in enumerate(plan.carried):
                for wire in ("data", "credit") if edge.target == CLIENT else ():
                    while ways.on.get((wire, r, e)):
                        ways.end((wire, r, e), number, LOST)
        elif action == wires.SUBMIT:
            ways.ended.append(Message(r, CLIENT, CONTROLLER, "submit", number, number))
        elif action == wires.CANCEL:
            ways.put(("cancel", r, 0), Message(r, CLIENT, CONTROLLER, "cancel", number), lambda: 1)
        for i in range(step.effects[0]):
            _send(scenario, g, ways, number, step.effects[1 + i * EFFECT_SIZE : 1 + (i + 1) * EFFECT_SIZE], step.after)
    left = [message for line in ways.on.values() for message in line]
    return sorted([*ways.ended, *left], key=lambda m: (m.sent, m.arrived or 0, m.source, m.target, m.text))


def _send(
    scenario: Scenario, g: list[int], ways: _Wires, number: int, effect: Sequence[int], after: Sequence[int]
) -> None:
    plan, memory = scenario.plan, list(after)
    kind, r, where, epoch = effect[KIND], effect[WHO], effect[WHERE], effect[AT_EPOCH]
    attempt = f" (attempt {epoch})" if epoch else ""

    def data_room() -> int:
        return wires.filled(memory, wires.data_wire(g, r, where), wires.config(g, wires.DATA_ROOM))

    def credit_room() -> int:
        return wires.filled(memory, wires.credit_wire(g, r, where), wires.config(g, wires.CREDIT_ROOM))

    if kind in (effects.SEND_START, effects.SEND_STOP):
        text = f"{'start' if kind == effects.SEND_START else 'stop'}{attempt}"
        ways.put(("control", r, where), Message(r, CONTROLLER, plan.stages[where], text, number), lambda: 1)
    elif kind == effects.SEND_STOPPED:
        text = f"stopped{attempt}"
        ways.put(("reply", r, where), Message(r, plan.stages[where], CONTROLLER, text, number), lambda: 1)
    elif kind == effects.SEND_NOTICE:
        ways.put(("notice", r, 0), Message(r, CONTROLLER, CLIENT, "end", number), lambda: 1)
    elif kind == effects.SEND_DATA:
        edge = plan.carried[where]
        message = Message(r, edge.source, edge.target, f"chunk {effect[A]}{attempt}", number)
        ways.put(("data", r, where), message, data_room)
    elif kind == effects.SEND_CREDIT:
        edge = plan.carried[where]
        text = f"taken {effect[A]}, limit {effect[C]}{attempt}"
        ways.put(("credit", r, where), Message(r, edge.target, edge.source, text, number), credit_room)
