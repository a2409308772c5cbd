"""What can happen next: every move of the workers, of people, of the network and its platform, and of time.

A worker is idle, holds a claim, waits for the answer, or has it in hand. Between two moves of a worker anything else
may happen, a crash included, so a pause of any length needs no move of its own. What is durable is the intents and what
the platform shows; a crash loses the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgledger.ledger.intent import Status
from msgledger.ledger.steps import Check, End, Finish, Park, Start, Step, TakeOver

from .book import DEAD, Book
from .world import World

IDLE, PICKED, CLAIMED, WAITING, ANSWERED = "idle", "picked", "claimed", "waiting", "answered"
FRESH = -1
"""The view of a worker that has read the newest event of its stream."""
NOBODY = -1
PLACE, ALL = 1, 2
OUTSIDE = frozenset({"crashes", "stops", "a person says", "cancels"})
"""Moves that nothing may count on."""


class Worker(NamedTuple):
    phase: str = IDLE
    message: int = 0
    attempt: int = 0
    unit: int = 0
    left: int = 0
    """Ticks to the hard deadline."""
    answer: str = ""
    marked: bool = False
    view: int = FRESH
    """The intent as it last read it, once that is not the newest any more."""
    plan: Step | None = None


class Request(NamedTuple):
    """A request that has left and may still be applied for so many ticks. `sender` stands for credential and bytes."""

    message: int
    attempt: int
    unit: int
    marked: bool
    sender: int
    ticks: int


class Shown(NamedTuple):
    """What people see of one unit."""

    age: int = -1
    """Ticks since it was first applied, -1 while it was not."""
    plain: int = 0
    marked: int = 0
    sender: int = 0

    @property
    def copies(self) -> int:
        return self.plain + self.marked


class State(NamedTuple):
    intents: tuple[int, ...]
    workers: tuple[Worker, ...]
    network: tuple[Request, ...]
    platform: tuple[Shown, ...]
    crashes: int
    stops: int
    cancels: int
    verdicts: int
    word: tuple[int, ...]
    """What a person's word has ended for each message: nothing, its `PLACE` in the lane, or, as it was wrong, `ALL`."""


Label = tuple[str | int, ...]
Move = tuple[Label, State, str | None]
"""What happened, where it leads, and the guarantee that it breaks."""


class Moves:
    def __init__(self, world: World) -> None:
        self.world = world
        self.habits = world.habits
        self.book = Book(world)
        planned = not (self.habits.lane_in_claim and self.habits.head_checked)
        self.exchangeable = world.workers == 2 and self.book.alike and not planned
        self.oldest = max(world.window or 0, world.lag)
        self.phases = {
            IDLE: self.idle,
            PICKED: self.picked,
            CLAIMED: self.claimed,
            WAITING: self.waiting,
            ANSWERED: self.answered,
        }

    def first(self) -> State:
        world = self.world
        return State(
            intents=tuple(self.book.recorded(place) for place in range(world.messages)),
            workers=(Worker(),) * world.workers,
            network=(),
            platform=(Shown(),) * (world.messages * world.units),
            crashes=world.crashes,
            stops=world.stops,
            cancels=world.cancels,
            verdicts=world.verdicts,
            word=(0,) * world.messages,
        )

    def after(self, s: State) -> Iterator[Move]:
        for w, worker in enumerate(s.workers):
            yield from self.phases[worker.phase](s, w, worker)
            if s.crashes and worker.phase != IDLE:
                yield ("crashes", w), self.crashed(s, w), None
        if s.cancels or s.verdicts:
            yield from self.people(s)
        for place, request in enumerate(s.network):
            if place == 0 or request != s.network[place - 1]:
                yield from self.platform(s, place, request)
        yield from self.time(s)

    # -- workers

    def idle(self, s: State, w: int, worker: Worker) -> Iterator[Move]:
        book = self.book
        for m, n in enumerate(s.intents):
            match book.step(n, w):
                case Start() as step:
                    yield from self.start(s, w, m, step)
                case Finish():
                    yield ("commits", w, m), self.write(s, m, book.finished(n, w), w), None
                case End(reason):
                    yield (reason, w, m), self.write(s, m, book.ended(n, w, reason), w), None
                case TakeOver():
                    yield ("takes over", w, m), self.write(s, m, book.taken_over(n, w), w), self.alive(s, m)
                case Check() as step:
                    found = self.found(s, m, step.unit)
                    what = "finds it" if found else "finds nothing"
                    yield (what, w, m, step.unit), self.write(s, m, book.looked_up(n, w, step, found), w), None
                    what = "cannot tell"
                    yield (what, w, m, step.unit), self.write(s, m, book.looked_up(n, w, step, None), w), None
                case Park():
                    yield ("holds", w, m), self.write(s, m, book.parked(n, w), w), None
                case _:
                    pass
            if not self.habits.durable_first and book.states[n].attempts == 0:
                yield ("sends unclaimed", w, m), s, "G1 a request left before its attempt was durable"

    def start(self, s: State, w: int, m: int, step: Start) -> Iterator[Move]:
        if self.book.states[s.intents[m]].attempts >= self.world.attempts[m] or not self.lane_free(s, m, w):
            return
        if self.habits.lane_in_claim and self.habits.head_checked:
            yield self.claim(s, w, m, s.intents[m], step)
        else:
            picked = Worker(PICKED, m, view=s.intents[m], plan=step)
            yield ("picks", w, m), self.with_worker(s, w, picked), None

    def picked(self, s: State, w: int, worker: Worker) -> Iterator[Move]:
        """Only where a habit is off: what was read is not tested again by the claim."""
        m = worker.message
        if self.habits.head_checked and s.intents[m] != worker.view:
            yield ("is refused", w, m), self.with_worker(s, w, Worker()), None
        elif worker.plan is not None and isinstance(worker.plan, Start):
            yield self.claim(s, w, m, worker.view, worker.plan)

    def claim(self, s: State, w: int, m: int, read: int, step: Start) -> Move:
        claimed = self.book.started(s.intents[m], read, w, step)
        state = self.book.states[claimed]
        marked = step.marked and self.habits.copies_marked
        worker = Worker(CLAIMED, m, state.attempts, state.next_unit or 0, self.world.deadline, marked=marked)
        return ("claims", w, m, state.attempts, step.licence), self.write(s, m, claimed, w, worker), self.alive(s, m)

    def found(self, s: State, m: int, u: int) -> bool:
        """A look-up asks for the key of the newest attempt in doubt."""
        seen, newest = self.shown(s, m, u), self.book.states[s.intents[m]].doubt[-1]
        return seen.age >= self.world.lag and (seen.marked if newest.marked else seen.plain) > 0

    def lane_free(self, s: State, m: int, w: int) -> bool:
        """The store's guard: nothing of the lane in flight, and every earlier message out of the way."""
        for other, n in enumerate(s.intents):
            if other != m and self.book.states[n].status is Status.SENDING:
                return False
            holds = self.book.holds_lane(n) if other < m else None
            if holds is not None and holds > self.book.wall[w]:
                return False
        return True

    def claimed(self, s: State, w: int, worker: Worker) -> Iterator[Move]:
        """The last look, and the I/O of one unit."""
        m, a, u = worker.message, worker.attempt, worker.unit
        n = s.intents[m]
        state = self.book.states[n]
        own = self.book.runs(n, w, a) and u not in state.receipts
        if (own or not self.habits.last_look_at_head) and (worker.left > 0 or not self.habits.last_look_at_deadline):
            broken = None
            if state.status in (Status.SENT, Status.COMMITTING):
                broken = "G3 a committed message is sent again"
            elif state.terminal:
                broken = "G7 a message is sent after its end"
            elif u in state.receipts:
                broken = "G3 a unit with a receipt is sent again"
            elif not own:
                broken = "G5 a superseded owner sends"
            request = Request(m, a, u, worker.marked, w, worker.left + self.world.late)
            sent = self.with_worker(s, w, worker._replace(phase=WAITING))
            yield ("sends", w, m, a, u), sent._replace(network=tuple(sorted((*s.network, request)))), broken
            if self.world.unreachable:
                yield ("cannot connect", w, m), self.told(s, w, "unreachable"), None
        else:
            yield ("looks and stops", w, m, a), self.fails(s, w, worker, "superseded"), None
        if s.stops:
            yield ("stops", w), self.fails(s, w, worker, "superseded")._replace(stops=s.stops - 1), None

    def waiting(self, s: State, w: int, worker: Worker) -> Iterator[Move]:
        m, a, u = worker.message, worker.attempt, worker.unit
        given_up = self.write(s, m, self.book.unknown(s.intents[m], w, a, u), w, Worker())
        moved = given_up.intents[m] != s.intents[m] and not self.book.runs(s.intents[m], w, a)
        yield ("gives up", w, m, a), given_up, self.alive(s, m) if moved else None
        if not self.habits.silence_is_unknown:
            yield ("gets a 5xx", w, m, a), self.fails(s, w, worker, "rejected"), None
        if s.stops:
            stopped = given_up if self.habits.stop_waits else self.fails(s, w, worker, "unreachable")
            yield ("stops", w), stopped._replace(stops=s.stops - 1), None

    def answered(self, s: State, w: int, worker: Worker) -> Iterator[Move]:
        m, a, u = worker.message, worker.attempt, worker.unit
        if worker.answer == "accepted":
            n = s.intents[m]
            known = self.book.accepted(n, worker.view, w, a, u)
            lost = not self.book.states[n].terminal and u not in self.book.states[known].receipts
            broken = "G5 a late fact is refused" if lost else None
            yield ("records a receipt", w, m, a, u), self.goes_on(s, w, worker, known), broken
        else:
            failed = self.fails(s, w, worker, worker.answer)
            state = self.book.states[failed.intents[m]]
            gives_up = state.refused or state.status is Status.FAILED
            before = self.book.states[s.intents[m]]
            broken = "G7 an optional part ends the rest" if gives_up and before.droppable(u) and state.owes else None
            yield (f"records: {worker.answer}", w, m, a, u), failed, None if before.terminal else broken

    def fails(self, s: State, w: int, worker: Worker, answer: str) -> State:
        n = s.intents[worker.message]
        return self.goes_on(s, w, worker, self.book.failed(n, worker.view, w, worker.attempt, worker.unit, answer))

    def goes_on(self, s: State, w: int, worker: Worker, n: int) -> State:
        """After a fact: the next unit of the same attempt, or nothing more."""
        unit: int | None = None
        if self.book.runs(n, w, worker.attempt):
            unit = self.book.states[n].next_unit
        elif not self.habits.last_look_at_head and worker.answer == "accepted" and worker.unit + 1 < self.world.units:
            unit = worker.unit + 1
        onward = Worker() if unit is None else worker._replace(phase=CLAIMED, unit=unit, answer="", view=FRESH)
        return self.write(s, worker.message, n, w, onward)

    def crashed(self, s: State, w: int) -> State:
        intents = tuple(self.book.bereft(n, w) for n in s.intents)
        return self.with_worker(s, w, Worker())._replace(intents=intents, crashes=s.crashes - 1)

    def alive(self, s: State, m: int) -> str | None:
        current = self.book.states[s.intents[m]].current
        if current is None or current.owner.endswith(DEAD):
            return None
        owner = s.workers[int(current.owner)]
        busy = owner.phase in (CLAIMED, WAITING) and (owner.message, owner.attempt) == (m, current.number)
        return "G5 a live owner loses its attempt inside its deadline" if busy and owner.left > 0 else None

    # -- people

    def people(self, s: State) -> Iterator[Move]:
        for m, n in enumerate(s.intents):
            if s.cancels:
                cancelled = self.book.cancelled(n)
                if cancelled is not None:
                    yield ("cancels", m), self.write(s, m, cancelled, NOBODY)._replace(cancels=s.cancels - 1), None
            state = self.book.states[n]
            if s.verdicts and state.status is Status.UNKNOWN and state.doubt:
                visible = self.shown(s, m, state.next_unit or 0).age >= 0
                for verdict in ("discard", "not-sent", *(("sent",) if visible else ())):
                    word = 0
                    if verdict == "not-sent":
                        word = ALL if visible or any(request.message == m for request in s.network) else PLACE
                    after = self.write(s, m, self.book.resolved(n, verdict), NOBODY)
                    words = (*s.word[:m], max(word, s.word[m]), *s.word[m + 1 :])
                    yield ("a person says", verdict, m), after._replace(verdicts=s.verdicts - 1, word=words), None

    # -- the network and the platform

    def platform(self, s: State, place: int, request: Request) -> Iterator[Move]:
        m, a, u = request.message, request.attempt, request.unit
        s = s._replace(network=s.network[:place] + s.network[place + 1 :])
        yield ("a request is lost", m, a, u), s, None
        asks = self.asker(s, request)
        if asks is not None and self.world.rejects:
            yield ("the platform rejects", m, a, u), self.told(s, asks, "rejected"), None
        if asks is not None and self.world.refuses:
            yield ("the platform refuses", m, a, u), self.told(s, asks, "refused"), None
        seen = self.shown(s, m, u)
        if self.recognised(seen, request):
            done, broken, what, answer = s, None, "the platform knows it", "accepted"
            if self.world.conflicts and not self.habits.conflicts_understood:
                answer = "conflict"
        else:
            done, broken = self.applied(s, request, seen)
            what, answer = "the platform shows it", "accepted"
        yield (what, m, a, u), done, broken
        if asks is not None:
            yield (f"{what} and says {answer}", m, a, u), self.told(done, asks, answer), broken

    def recognised(self, seen: Shown, request: Request) -> bool:
        world = self.world
        if world.window is None or not 0 <= seen.age < world.window:
            return False
        same = world.credentials[seen.sender] == world.credentials[request.sender]
        return same and world.bytes_[seen.sender] == world.bytes_[request.sender]

    def applied(self, s: State, request: Request, seen: Shown) -> tuple[State, str | None]:
        m, u = request.message, request.unit
        now = Shown(
            age=max(seen.age, 0) if self.world.window is None else 0,
            plain=min(seen.plain + (not request.marked), 2),
            marked=min(seen.marked + request.marked, 3),
            sender=request.sender if seen.age < 0 else seen.sender,
        )
        place = m * self.world.units + u
        after = s._replace(platform=(*s.platform[:place], now, *s.platform[place + 1 :]))
        if s.word[m] == ALL:
            return after, None
        if now.plain > 1:
            return after, "G4 two copies, none of them marked"
        if now.copies > 1 and not self.world.at_least_once:
            return after, "G4 a copy without a licence"
        if not seen.copies and not s.word[m] and any(later.copies for later in s.platform[place + 1 :]):
            return after, "G6 it lands after a later one"
        return after, None

    def shown(self, s: State, m: int, u: int) -> Shown:
        return s.platform[m * self.world.units + u]

    def asker(self, s: State, request: Request) -> int | None:
        """The worker that still waits for this answer."""
        for w, worker in enumerate(s.workers):
            asks = (worker.message, worker.attempt, worker.unit) == (request.message, request.attempt, request.unit)
            if worker.phase == WAITING and asks and w == request.sender:
                return w
        return None

    def told(self, s: State, w: int, answer: str) -> State:
        return self.with_worker(s, w, s.workers[w]._replace(phase=ANSWERED, answer=answer))

    # -- time

    def time(self, s: State) -> Iterator[Move]:
        network = tuple(r._replace(ticks=r.ticks - 1) for r in s.network if r.ticks > 1)
        platform = tuple(
            shown if shown.age < 0 or shown.age >= self.oldest else shown._replace(age=shown.age + 1)
            for shown in s.platform
        )
        intents = tuple(self.book.later(n) for n in s.intents)
        passed = s._replace(intents=intents, network=network, platform=platform)
        workers = tuple(worker._replace(left=worker.left - 1) if worker.left else worker for worker in s.workers)
        yield ("time passes",), passed._replace(workers=workers), None
        if not self.habits.deadline_counts_sleep:
            yield ("time passes while the hosts sleep",), passed, None

    # -- states

    def write(self, s: State, m: int, n: int, w: int, worker: Worker | None = None) -> State:
        """After an append to `m` by `w`: whoever else had read it is behind now."""
        workers = s.workers
        if n != s.intents[m]:
            workers = tuple(
                other._replace(view=self.book.view(s.intents[m]))
                if o != w and other.phase not in (IDLE, PICKED) and (other.message, other.view) == (m, FRESH)
                else other
                for o, other in enumerate(workers)
            )
        if worker is not None:
            workers = (*workers[:w], worker, *workers[w + 1 :])
        return s._replace(intents=(*s.intents[:m], n, *s.intents[m + 1 :]), workers=workers)

    def canonical(self, s: State) -> State:
        """The same state with its workers in order, where they are alike: a trace may exchange their names."""
        if not self.exchangeable or s.workers[0] < s.workers[1]:
            return s
        swapped = s._replace(
            workers=s.workers[::-1],
            intents=tuple(self.book.swapped(n) for n in s.intents),
            network=tuple(sorted(r._replace(sender=1 - r.sender) for r in s.network)),
        )
        return min(s, swapped)

    def with_worker(self, s: State, w: int, worker: Worker) -> State:
        return s._replace(workers=(*s.workers[:w], worker, *s.workers[w + 1 :]))
