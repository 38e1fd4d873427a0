"""V-shaped schedules that hold as many activations as they are told to.

Their papers build a schedule of a building block: when, in slots of one op, a
single microbatch runs its six ops of a rank. The block repeats every six slots, so
that a rank holds, in the long run, as many activations as its two lifespans have
repetitions. Before and after the steady state there are gaps, into which ops are
squeezed that the steady state has later. Here a run in slots does that; it is the
outcome of a run, so the order is listed for given sizes.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from pipeproof.spec import (
    B,
    F,
    I,
    W,
    by_start,
    deadlock_free,
    makespan,
    messages,
    peak_activations,
    same_gradients,
    schedule,
)
from pipeproof.spec.ops import Letter, Op
from pipeproof.spec.orders import Starts

PERIOD = 6
"""Slots from one microbatch to the next: F, I and W of both chunks."""

TURN = 2
"""Slots that pass on rank 0 between forward and backward, where they may: without
them the ops of a block share slots where p is a multiple of 3."""


class _Steps(NamedTuple):
    """Slots from rank to rank, for each way through the V: the forward down the
    ranks and up, the backward down and up."""

    forward_down: int
    forward_up: int
    backward_down: int
    backward_up: int


class _Item(NamedTuple):
    """An op with its slot in the order of repeated blocks; least first."""

    slot: int
    microbatch: int
    letter: str
    chunk: int


_LETTERS: dict[str, Letter] = {"F": F, "I": I, "W": W}


def _block(p: int, rank: int, steps: _Steps) -> dict[tuple[str, int], int]:
    """(letter, chunk) -> slot, for the first microbatch on a rank."""
    beyond = p - 1 - rank
    bottom = steps.forward_down * (p - 1) + 1  # the forward comes up from the last rank
    top = bottom + steps.forward_up * (p - 1) + 1 + TURN  # the backward starts
    turned = top + steps.backward_down * (p - 1) + 1
    slots = {
        ("F", 0): steps.forward_down * rank,
        ("F", 1): bottom + steps.forward_up * beyond,
        ("I", 1): top + steps.backward_down * rank,
        ("I", 0): turned + steps.backward_up * beyond,
    }
    # Weight gradients take what is left of the period, the first one first.
    taken = {slot % PERIOD for slot in slots.values()}
    for chunk in (1, 0):
        slot = slots["I", chunk] + 1
        while len(taken) < PERIOD and slot % PERIOD in taken:
            slot += 1
        taken.add(slot % PERIOD)
        slots["W", chunk] = slot
    return slots


def _squeezed(p: int, m: int, steps: _Steps, room: int, patient: bool) -> list[list[Op]]:
    """The rows of a run in slots, with ``room`` activations a rank.

    Each rank runs the first op in the order of the blocks whose inputs are
    there. A forward may be early only if all that stands before it still fits
    into the room behind it, so that no rank ever lacks the room that an older
    microbatch needs. A ``patient`` rank runs weight gradients only when there
    is nothing else to run, or no room left; another, when no forward is left.
    """
    waiting = [
        sorted(
            _Item(slot + PERIOD * i, i, letter, chunk)
            for (letter, chunk), slot in _block(p, rank, steps).items()
            for i in range(m)
        )
        for rank in range(p)
    ]
    rows: list[list[Op]] = [[] for _ in range(p)]
    done: set[tuple[str, int, int]] = set()  # (letter, stage, microbatch)
    held: Counter[int] = Counter()
    forwards = [2 * m] * p

    def stage(rank: int, chunk: int) -> int:
        return 2 * p - 1 - rank if chunk else rank

    def ready(rank: int, item: _Item) -> bool:
        own, i = stage(rank, item.chunk), item.microbatch
        if item.letter == "F":
            return own == 0 or ("F", own - 1, i) in done
        if item.letter == "W":
            return ("I", own, i) in done
        return ("F", own, i) in done and (own == 2 * p - 1 or ("I", own + 1, i) in done)

    def chosen(rank: int) -> int | None:
        """The place of the op to run next among those that wait."""
        later = None  # a weight gradient that can wait
        holds = most = held[rank]
        for place, item in enumerate(waiting[rank]):
            if ready(rank, item) and (item.letter != "F" or max(most, holds) < room):
                can_wait = held[rank] < room if patient else not forwards[rank]
                if item.letter != "W" or not can_wait:
                    return place
                later = place if later is None else later
            holds += (item.letter == "F") - (item.letter == "W")
            most = max(most, holds)
        return later

    while any(waiting):
        ran = []
        for rank in range(p):
            place = chosen(rank)
            if place is None:
                continue
            item = waiting[rank].pop(place)
            held[rank] += (item.letter == "F") - (item.letter == "W")
            forwards[rank] -= item.letter == "F"
            rows[rank].append(_LETTERS[item.letter](item.microbatch, chunk=item.chunk))
            ran.append((item.letter, stage(rank, item.chunk), item.microbatch))
        assert ran, "the oldest microbatch always has room"
        done.update(ran)
    return rows


def _two_chunks(v: int) -> str | None:
    return None if v == 2 else "a V has v=2 chunks a rank"


_CLAIMS = (
    deadlock_free("nccl"),
    same_gradients(),
    messages(equals=lambda p, m: 4 * m * (p - 1)),
)


def _half(p: int) -> int:
    return 2 * ((p + 2) // 2)


@schedule(
    name="v-half",
    paper="Pipeline parallelism with controllable memory, arXiv 2405.15362",
    placement="wave",
    recipe="zero-bubble",
    valid=_two_chunks,
    claims=[
        *_CLAIMS,
        peak_activations(at_most=_half),
        makespan(at_most=lambda p, m: 6 * m + max(0, 3 * p - 4, 4 * p - 3 - 2 * m)),
    ],
)
def v_half(p: int, m: int, v: int = 2) -> list[list[Op]]:
    """A V in half of the memory of 1F1B: (p + 2) // 2 microbatches on every rank.

    Two slots from rank to rank for the forward's way up and the backward's way
    down, one for the others.
    """
    return _squeezed(p, m, _Steps(1, 2, 2, 1), _half(p), patient=False)


def _third(p: int) -> int:
    return 2 * ((p + 4) // 3)


@schedule(
    name="v-min",
    paper="Pipeline parallelism with controllable memory, arXiv 2405.15362",
    placement="wave",
    recipe="zero-bubble",
    valid=_two_chunks,
    claims=[
        *_CLAIMS,
        peak_activations(at_most=_third),
        makespan(at_most=lambda p, m: 6 * m + max(0, 4 * p - 5)),
    ],
)
def v_min(p: int, m: int, v: int = 2) -> list[list[Op]]:
    """A V in a third of the memory of 1F1B: (p + 4) // 3 microbatches on every rank.

    One slot from rank to rank: no microbatch stays longer than it must.
    """
    return _squeezed(p, m, _Steps(1, 1, 1, 1), _third(p), patient=True)


def _whole_block(p: int) -> list[tuple[int, Letter, int, int]]:
    """(rank, letter, chunk, slot) of a microbatch whose backwards take two slots.

    Everything comes as early as the slots that other microbatches repeat allow.
    The two forwards of a rank are an odd number of slots apart, as what is left
    of the period then holds two backwards.
    """
    block: list[tuple[int, Letter, int, int]] = []
    taken: list[set[int]] = [{rank % PERIOD} for rank in range(p)]
    for rank in range(p):
        block.append((rank, F, 0, rank))
    slot = p
    for rank in reversed(range(p)):
        slot += (slot - rank) % 2 == 0
        block.append((rank, F, 1, slot))
        taken[rank].add(slot % PERIOD)
        slot += 1
    for chunk, ranks in ((1, range(p)), (0, reversed(range(p)))):
        for rank in ranks:
            while not _leaves_pairs(taken[rank], slot):
                slot += 1
            block.append((rank, B, chunk, slot))
            taken[rank] |= {slot % PERIOD, (slot + 1) % PERIOD}
            slot += 2
    return block


def _leaves_pairs(taken: set[int], slot: int) -> bool:
    """Whether two slots are free, and those that are left can be paired, too."""
    pair = {slot % PERIOD, (slot + 1) % PERIOD}
    left = set(range(PERIOD)) - taken - pair
    paired = not left or any({x, (x + 1) % PERIOD} == left for x in left)
    return not pair & taken and paired


@schedule(
    name="1f1b-v",
    paper="Pipeline parallelism with controllable memory, arXiv 2405.15362",
    placement="wave",
    recipe="zero-bubble",
    valid=_two_chunks,
    claims=[
        *_CLAIMS,
        peak_activations(at_most=lambda p: 2 * (2 * p // 3 + 1)),
        makespan(at_most=lambda p, m: 6 * (m + p - 1) + 2),
    ],
)
def one_f_one_b_v(p: int, m: int, v: int = 2) -> Starts:
    """A V with whole backwards in two thirds of the memory of 1F1B.

    The block is repeated as it is, without squeezing: a step is as long as that of
    1F1B, or by up to two ops of half a stage longer.
    """
    return by_start(
        (rank, letter(i, chunk=chunk), slot + PERIOD * i)
        for rank, letter, chunk, slot in _whole_block(p)
        for i in range(m)
    )
