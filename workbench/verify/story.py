"""A counterexample told to a person: who did what, in which order, and what is wrong at the end."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.control import effects
from workbench.control.effects import AT_EPOCH, EFFECT_SIZE, KIND, WHERE, WHO, A
from workbench.control.layout import (
    ADVERTISED,
    ARMED,
    CHUNK_BYTES,
    EDGE_MAX,
    EDGES,
    EPOCH,
    FLOOR,
    FLOORED,
    FROM,
    LIMIT,
    NOTICE,
    OUTCOME,
    PARENT,
    PHASE,
    RECEIVED,
    REQUEST_MAX,
    REQUEST_USED,
    REQUESTS,
    RESERVED_BYTES,
    RETURNED_BYTES,
    SENT,
    SLOTS,
    STAGES,
    STATUS,
    TAKEN,
    TAKEN_KNOWN,
    TENANT_MAX,
    TENANTS,
    TOTAL_MAX,
    TRIMMED_BYTES,
    USED,
    WAITING,
    WAITING_MAX,
    WIDTH,
    account,
    edge_row,
    edge_used,
    receiver,
    request,
    sender,
    slots_used,
    stage,
    stage_row,
    tenant_used,
)
from workbench.control.phases import NEW, PHASES, STATUSES
from workbench.control.ranges import MAX_CHUNKS, UNBOUNDED
from workbench.schema.enums import OUTCOME_STATUS
from workbench.twin import Edit
from workbench.verify import laws, wires
from workbench.verify.explorer import Step, replay
from workbench.verify.readiness import may_go
from workbench.verify.scenario import Scenario

# What each property says, as the sentence that a violation contradicts.
PROPERTIES: dict[int, str] = {
    laws.BOUND: "promised bytes and slots never exceed their bound, B(t) <= B_max",
    laws.CONSERVATION: "every credit is released exactly once: each sum equals what its accounts add up to",
    laws.HELD: "credit comes back only at takeover: whatever exists of a stream is still counted",
    laws.LEAK: "nothing works on an epoch that is over, and everything is released at its end",
    laws.TERMINAL: "every accepted request reaches exactly one terminal state",
    laws.ORDER: "no output is committed twice or out of order, and every stage sees its inputs in order",
    laws.AFTER_CANCEL: "nothing is delivered after the client has cancelled or was told the end",
    laws.LATE_LAUNCH: "after the end at most one reserved launch per stage follows, none once the stage was told",
    laws.STATE_MISUSE: "no state is used after its release, or by another request, generation or tenant",
    laws.UNRECORDED: "every launch is recorded, wasted ones too",
    laws.MIXED: "chunks of different epochs, generations or model revisions never meet in one output",
    laws.ROOM: "a wire never holds more than the credit allows",
    laws.CAUSE: "lost, late, repeated or reordered messages never change an outcome; a failure has its cause",
    laws.COMPLETE: "a request succeeds only when the client has every chunk of every output",
    laws.OVERRUN: "a sender never knows of more credit than its consumer gave, and never runs beyond it",
    laws.FAMILY: "a parent and its children succeed together, and none of them outlives a failure",
    laws.PROMPT: "nothing waits for a timer unless something was lost, and no stage for credit or room that is there",
    laws.COLLATERAL: "a dead worker touches only requests that had something there",
}
KINDS: dict[str, str] = {
    "deadlock": "no deadlock: unless all is done, something can happen",
    "no-way-out": "once faults stop, every accepted request ends and everything is released",
    "only-by-timeout": "without a silent loss, everything ends without waiting for a deadline",
}


def letter(r: int) -> str:
    """Requests are called A, B, C."""
    return chr(ord("A") + r)


class Teller:
    """Names of the stages and edges of one scenario, and sentences about its actions."""

    def __init__(self, scenario: Scenario) -> None:
        self.g, self.m0 = scenario.vectors()
        self.stages = (*scenario.plan.stages, "client")
        self.edges = tuple(edge.name for edge in scenario.plan.carried)

    def action(self, which: int, before: Sequence[int]) -> str:
        """One sentence for an action taken in state `before`."""
        g, m = self.g, list(before)
        action, r = wires.action_of(g, which), wires.request_of(g, which)
        place, seq = wires.place_of(g, which), wires.arg_of(g, which)
        who = letter(r)
        stage = self.stages[min(place, len(self.stages) - 1)]
        edge = self.edges[min(place, len(self.edges) - 1)]

        def data(i: int) -> str:
            what = m[wires.data_wire(g, r, place) + i] - 1
            chunks = wires.config(g, wires.CHUNKS)
            return f"{who}'s chunk {what % chunks} of epoch {what // chunks}"

        def credit(i: int) -> str:
            what = m[wires.credit_wire(g, r, place) + i] - 1
            base, chunks = wires.limit_count(g), wires.config(g, wires.CHUNKS) + 1
            taken, epoch = what // base % chunks, what // base // chunks
            return f"{who}'s credit message on {edge} (epoch {epoch}: {taken} taken, limit {what % base})"

        def control() -> str:
            what = m[wires.control_wire(g, r, place)] - 1
            return f"{'stop' if what % 2 else 'start'} of {who} (epoch {what // 2})"

        sentences = {
            wires.SUBMIT: lambda: f"client submits {who}{self.family(m, r)}",
            wires.ASK_AGAIN: lambda: f"controller looks again at {who}, which waits",
            wires.CONTROL: lambda: f"{stage} receives the {control()}",
            wires.REPLY: lambda: f"controller hears that {stage} has stopped {who}",
            wires.DATA: lambda: f"{data(0)} arrives over {edge}",
            wires.CREDIT: lambda: f"{credit(0)} arrives",
            wires.RESERVE: lambda: f"{stage} reserves room for {who}'s next chunk",
            wires.LAUNCH: lambda: f"{stage} launches {who}'s next task and takes its inputs over",
            wires.FINISH: lambda: f"{stage}'s launch for {who} ends",
            wires.NOTICE_ARRIVES: lambda: f"client hears that {who} has ended",
            wires.CANCEL_ARRIVES: lambda: f"controller receives the cancel of {who}",
            wires.RESEND: lambda: f"timer: {stage_of(g, self, place)} sends {who}'s chunk {seq} on {edge} again",
            wires.REFRESH: lambda: f"timer: {who}'s credit on {edge} is stated again",
            wires.START_AGAIN: lambda: f"timer: controller tells {stage} to start {who} again",
            wires.STOP_AGAIN: lambda: f"timer: controller tells {stage} to stop {who} again",
            wires.DETECT: lambda: f"controller learns that {stage}'s worker died; its successor is up and empty",
            wires.EXPIRE: lambda: f"deadline of {who} passes",
            wires.CANCEL: lambda: f"CLIENT cancels {who}",
            wires.LOSE_DATA: lambda: f"FAULT: {data(0)} is lost on {edge}",
            wires.LOSE_CREDIT: lambda: f"FAULT: {credit(0)} is lost",
            wires.LOSE_CONTROL: lambda: f"FAULT: the {control()} for {stage} is lost",
            wires.LOSE_REPLY: lambda: f"FAULT: {stage}'s word that it stopped {who} is lost",
            wires.DUPLICATE_DATA: lambda: f"FAULT: {data(0)} arrives over {edge}, and a copy stays on the wire",
            wires.DUPLICATE_CREDIT: lambda: f"FAULT: {credit(0)} arrives, and a copy stays on the wire",
            wires.DUPLICATE_CONTROL: lambda: f"FAULT: {stage} receives the {control()}, and a copy stays on the wire",
            wires.DUPLICATE_REPLY: lambda: f"FAULT: {stage}'s word that it stopped {who} arrives, and a copy stays",
            wires.REORDER_DATA: lambda: f"FAULT: {data(1)} overtakes another and arrives over {edge}",
            wires.REORDER_CREDIT: lambda: f"FAULT: {credit(1)} overtakes another and arrives",
            wires.KILL: lambda: f"FAULT: {stage}'s worker dies",
            wires.UPGRADE: lambda: f"FAULT: {stage}'s worker dies; its successor will run another model revision",
            wires.LOST_BRANCH: lambda: f"FAULT: {stage} silently forgets to work on {who}",
            wires.FAIL: lambda: (
                f"FAULT: {stage}'s launch for {who} {('ends in an error', 'makes too large a chunk')[seq]}"
            ),
            wires.RECONNECT: lambda: f"FAULT: {who}'s connection to the client breaks and is made again",
            wires.RESIZE: lambda: f"FAULT: the credit protocol changes {who}'s window on {edge}",
        }
        return sentences[action]()

    def family(self, m: Sequence[int], r: int) -> str:
        """Whose child a request is, for its first sentence."""
        parent = m[request(self.g, r) + PARENT]
        return f", a child of {letter(parent - 1)}" if parent else ""

    def consequences(self, step: Step) -> list[str]:
        """What the machine did in a step, for those effects that a reader wants to know."""
        lines = []
        out = step.effects
        for i in range(out[0]):
            at = 1 + i * EFFECT_SIZE
            kind, who, where, epoch, number = (out[at + field] for field in (KIND, WHO, WHERE, AT_EPOCH, A))
            if kind == effects.ADMITTED:
                lines.append(f"{letter(who)} is admitted, epoch {epoch}")
            elif kind == effects.REFUSED:
                lines.append(f"{letter(who)} is {('', 'made to wait', 'rejected')[number]}")
            elif kind == effects.ENDED:
                lines.append(f"{letter(who)} ends: {OUTCOME_STATUS[number - 1]}")
            elif kind == effects.FREED:
                lines.append(f"everything {letter(who)} held in epoch {epoch} is back")
            elif kind == effects.COMMITTED:
                lines.append(f"client commits {letter(who)}'s chunk {number}")
            elif kind == effects.SUPPRESSED:
                lines.append(f"client has {letter(who)}'s chunk {number} already")
            elif kind == effects.DROPPED:
                lines.append(f"chunk {number} is dropped")
            elif kind == effects.RECORDED and number == 1:
                lines.append("its result is thrown away, and recorded")
            elif kind == effects.RELEASED:
                lines.append(f"{self.stages[where]} releases state slot {number}")
        return lines

    def state(self, m: Sequence[int]) -> str:
        """The numbers that explain a state: bytes promised, and each request where it stands."""
        g, m = self.g, list(m)
        parts = [f"{m[USED]} bytes promised"]
        for r in range(g[REQUESTS]):
            at = request(g, r)
            outcome = f", {OUTCOME_STATUS[m[at + OUTCOME] - 1]}" if m[at + OUTCOME] else ""
            stages = " ".join(f"{self.stages[v]}={STATUSES[m[stage(g, r, v) + STATUS]]}" for v in range(g[STAGES]))
            parts.append(f"{letter(r)} {PHASES[m[at + PHASE]]}{outcome} in epoch {m[at + EPOCH]} ({stages})")
        return "; ".join(parts)

    def evidence(self, m: Sequence[int], code: int) -> list[str]:
        """The numbers that a reader compares to see that property `code` does not hold."""
        m, lines = list(m), []
        if code in _OF_ENDS:
            for r in self.known(m):
                timer = "set" if m[request(self.g, r) + ARMED] else "off"
                news = ("nothing to tell", "untold", "told")[m[request(self.g, r) + NOTICE]]
                lines.append(f"{letter(r)}{self.family(m, r)}: deadline timer {timer}, client {news}")
            if self.g[WAITING_MAX] < MAX_CHUNKS:
                lines.append(f"{m[WAITING]} wait for admission, {self.g[WAITING_MAX]} may")
        if code in _OF_SUMS:
            lines += self.sums(m)
        if code in _OF_STREAMS:
            for r in self.known(m):
                lines += [self.stream(m, r, e) for e in range(self.g[EDGES])]
        if code == laws.PROMPT:
            for r in self.known(m):
                for v in range(self.g[STAGES]):
                    if may_go(self.g, m, r, v):
                        lines.append(f"{letter(r)}'s next task at {self.stages[v]} has all that it needs")
        return lines

    def known(self, m: Sequence[int]) -> list[int]:
        """Requests that were submitted or hold something."""
        records = [(r, request(self.g, r)) for r in range(self.g[REQUESTS])]
        return [r for r, at in records if m[at + PHASE] != NEW or m[at + REQUEST_USED] != 0]

    def sums(self, m: Sequence[int]) -> list[str]:
        """Sums of the ledger beside their bounds."""
        g = self.g
        rows = [("in all", m[USED], g[TOTAL_MAX])]
        rows += [(f"tenant {t}", m[tenant_used(t)], g[TENANT_MAX]) for t in range(g[TENANTS])]
        rows += [(letter(r), m[request(g, r) + REQUEST_USED], g[REQUEST_MAX]) for r in self.known(m)]
        rows += [(name, m[edge_used(g, e)], g[edge_row(g, e) + EDGE_MAX]) for e, name in enumerate(self.edges)]
        parts = [f"{name} {used}" + (f" of {most}" if most < UNBOUNDED else "") for name, used, most in rows]
        slots = (f"{self.stages[v]} {m[slots_used(g, v)]} of {g[stage_row(g, v) + SLOTS]}" for v in range(g[STAGES]))
        return [f"bytes promised: {', '.join(parts)}", f"slots promised: {', '.join(slots)}"]

    def stream(self, m: Sequence[int], r: int, e: int) -> str:
        """Account, sender and receiver of one stream."""
        g = self.g
        at, near, far = account(g, r, e), sender(g, r, e), receiver(g, r, e)
        floor = g[edge_row(g, e) + FLOOR] * g[edge_row(g, e) + CHUNK_BYTES] * m[at + FLOORED]
        return (
            f"{letter(r)} on {self.edges[e]}: {m[at + RESERVED_BYTES]} bytes reserved, "
            f"{m[at + TRIMMED_BYTES]} trimmed, "
            f"{m[at + RETURNED_BYTES]} returned, floor {floor}; "
            f"sender has sent {m[near + SENT]} chunks, knows of {m[near + TAKEN_KNOWN]} taken and "
            f"limit {m[near + LIMIT]}; receiver has {m[far + RECEIVED]}, took {m[far + TAKEN]}, "
            f"states limit {m[far + ADVERTISED]}, window {m[far + WIDTH]}"
        )


# Which numbers belong to which property.
_OF_ENDS = {laws.TERMINAL, laws.CAUSE, laws.FAMILY}
_OF_SUMS = {laws.BOUND, laws.CONSERVATION, laws.PROMPT}
_OF_STREAMS = {laws.CONSERVATION, laws.HELD, laws.OVERRUN, laws.ORDER, laws.ROOM, laws.PROMPT}


def stage_of(g: list[int], teller: Teller, e: int) -> str:
    """Name of the stage that sends on edge `e`."""
    return teller.stages[g[edge_row(g, e) + FROM]]


def tell(scenario: Scenario, trace: Sequence[int], kind: str, code: int, *, edits: Sequence[Edit] = ()) -> str:
    """The story of a trace: numbered steps with what followed, then the property that does not hold.

    Parameters
    ----------
    scenario : Scenario
        World in which the trace was found.
    trace : sequence of int
        Action codes, as `Exploration.trace`.
    kind, code : str, int
        As in `Exploration`.
    edits : sequence of Edit, keyword-only
        The mutant that was explored.
    """
    teller = Teller(scenario)
    lines = []
    steps = replay("workbench.verify.world", teller.g, teller.m0, trace, edits=edits)
    for number, step in enumerate(steps, start=1):
        lines.append(f"{number:>3}. {teller.action(step.action, step.before)}")
        lines += [f"       -> {line}" for line in teller.consequences(step)]
    last = steps[-1].after if steps else teller.m0
    lines.append(f"  =  {teller.state(last)}")
    lines += [f"     {line}" for line in teller.evidence(last, code or laws.TERMINAL)]
    lines.append(f"  X  violated: {PROPERTIES[code] if code else KINDS[kind]}")
    return "\n".join(lines)
