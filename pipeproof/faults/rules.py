"""The table of rules: how a target can be broken, and which checks must say so.

Where several checks are named, it depends on the place which of them is right:
an op that moves may miss its input, cross a message or close a circle of waits.
"""

from __future__ import annotations

from pipeproof.faults import in_messages as messages
from pipeproof.faults import in_order as order
from pipeproof.faults import in_values as values
from pipeproof.faults.sites import Rule
from pipeproof.program.ops import Kind

_ARRIVAL = ("coverage", "order", "matching", "deadlock")
"""Of an input that does not come."""
_ORDER = (*_ARRIVAL, "race", "memory")
_VALUES = ("gradients", "versions", "matching")
_ANY = (*_ORDER, "versions", "gradients")

_WHICH = (
    Rule("drop a forward or backward", _ANY, order.dropped(Kind.F, Kind.B, Kind.I, Kind.R)),
    Rule("drop a weight gradient", ("coverage", "gradients", "memory"), order.dropped(Kind.W)),
    Rule("repeat a compute", ("coverage", "order"), order.repeated(*order.COMPUTES)),
    Rule("wrong microbatch", ("coverage", "order"), order.wrong_microbatch),
    Rule("wrong stage", ("coverage", "order"), order.wrong_stage),
    Rule("wrong placement", ("coverage", "order"), order.wrong_placement),
    Rule("B becomes I", ("coverage", "order"), order.relettered(Kind.B, Kind.I)),
    Rule("I becomes B", ("coverage", "order"), order.relettered(Kind.I, Kind.B)),
    Rule("B becomes I on a stage", ("coverage", "order"), order.stage_relettered),
    Rule("one warm-up forward more", _ANY, order.warm_up(more=True)),
    Rule("one warm-up forward fewer", _ANY, order.warm_up(more=False)),
    Rule("swap neighbours", _ANY, order.swapped_neighbours),
    Rule("move an op earlier", _ANY, order.moved(-order.FAR)),
    Rule("move an op later", _ANY, order.moved(order.FAR)),
)
_MESSAGES = (
    Rule("drop a send", ("matching", "deadlock"), messages.end_dropped(True)),
    Rule("drop a receive", _ARRIVAL, messages.end_dropped(False)),
    Rule(
        "repeat a message",
        ("coverage", "matching", "deadlock"),
        order.repeated(Kind.SEND, Kind.RECV),
    ),
    Rule("swap receives", _ORDER, messages.swapped_receives),
    Rule("swap sends", _ORDER, messages.swapped_sends),
    Rule("receive before send", _ORDER, messages.receive_before_send),
    Rule("send before receive", _ORDER, messages.send_before_receive),
    Rule("late receive", _ORDER, messages.late_receive),
)
_SHARDING = (
    Rule("drop UNSHARD", ("order",), order.dropped(Kind.UNSHARD)),
    Rule("drop RESHARD", ("order", "memory"), order.dropped(Kind.RESHARD)),
    Rule("drop REDUCE_GRAD", ("coverage",), order.dropped(Kind.REDUCE_GRAD)),
    Rule("repeat REDUCE_GRAD", ("order",), order.repeated(Kind.REDUCE_GRAD)),
    Rule("early REDUCE_GRAD", ("order",), order.moved(-order.FAR, Kind.REDUCE_GRAD)),
    Rule("early UNSHARD", ("order",), order.moved(-order.FAR, Kind.UNSHARD)),
    Rule("late UNSHARD", ("order",), order.moved(order.FAR, Kind.UNSHARD)),
    Rule("early RESHARD", ("order",), order.moved(-order.FAR, Kind.RESHARD)),
)
_ISSUED = (
    Rule("wrong peer", ("matching", "deadlock"), messages.other_peer),
    Rule("wrong payload", _ARRIVAL, messages.other_payload),
    Rule("wrong communicator", ("matching", "deadlock"), messages.other_comm),
    Rule("wrong shape", ("matching",), messages.disagreeing("shape")),
    Rule("wrong dtype", ("matching",), messages.disagreeing("dtype")),
    Rule("wrong count", ("matching",), messages.disagreeing("count")),
    Rule("missing wait", ("race", "memory", "matching"), messages.wait_dropped),
    Rule("wait at once", ("deadlock",), messages.wait_at_once),
    Rule("swap members of a group", _ORDER, messages.swapped_members),
    Rule("group taken apart", _ORDER, messages.taken_apart),
)
_CALLS = (
    Rule("drop a collective", ("matching", "deadlock"), order.dropped(Kind.COLL)),
    Rule("repeat a collective", ("matching", "deadlock", "race"), order.repeated(Kind.COLL)),
    Rule("swap collectives", (*_ORDER, *_VALUES), messages.swapped_calls),
    Rule("wrong label of a collective", ("matching",), messages.other_label),
    Rule("sum for mean", ("gradients",), messages.other_operation),
    Rule("drop a SIGNAL", ("deadlock",), order.dropped(Kind.SIGNAL)),
    Rule("drop an AWAIT", ("race", *_ORDER), order.dropped(Kind.AWAIT)),
)
_GRADIENTS = (
    Rule("wrong scale", ("gradients",), values.wrong_scale),
    Rule("drop a SCALE", ("gradients",), order.dropped(Kind.SCALE)),
    Rule("wrong coefficient", ("gradients",), values.wrong_coefficient),
    Rule("drop a contribution", ("gradients",), values.dropped_contribution),
    Rule("assign instead of add", ("gradients",), values.assigned),
    Rule("missing ZERO", ("gradients",), order.dropped(Kind.ZERO)),
    Rule("drop a STEP", ("gradients", "versions"), order.dropped(Kind.STEP)),
    Rule("repeat a STEP", ("gradients", "versions"), order.repeated(Kind.STEP)),
    Rule("another rule of update", ("gradients",), values.other_optimizer),
    Rule("another random state", ("gradients",), values.other_random_state),
    Rule("repeat a side effect", ("gradients",), values.repeated_effect),
    Rule("drop a side effect", ("gradients",), values.dropped_effect),
)
_VERSIONS = (
    Rule("wrong weight version", ("versions",), values.wrong_version("wv", "uses")),
    Rule("wrong version demanded", ("versions",), values.wrong_version("it", "demands")),
    Rule("wrong version set", ("versions",), values.wrong_version("to", "sets")),
    Rule("no weight stash", ("versions",), values.forgotten_version),
    Rule("wrong rollback", ("versions",), values.wrong_rollback),
    Rule("drop a rollback", ("versions", "gradients"), order.dropped(Kind.ROLLBACK)),
)
_MEMORY = (
    Rule("missing free", ("memory",), values.missing_free),
    Rule("early free", ("memory", "order", "race"), values.early_free),
    Rule("free before allocation", ("memory", "order"), values.free_at_start),
    Rule("double free", ("memory", "order"), values.double_free),
    Rule("drop an ALLOC", ("memory", "order"), order.dropped(Kind.ALLOC)),
    Rule("larger allocation", ("memory",), values.larger_allocation),
    Rule("drop a MAKE", ("memory", "order"), order.dropped(Kind.MAKE)),
    Rule("early DROP", ("memory", "order"), order.moved(-order.FAR, Kind.DROP)),
    Rule("wrong content", ("matching", "order"), values.wrong_content),
    Rule("wrong slot", ("matching", "order", "race"), values.wrong_slot),
    Rule("drop a copy", ("matching", "order", "race"), order.dropped(Kind.COPY, Kind.ICOPY)),
)

SCHEDULE_RULES = (*_WHICH, *_MESSAGES, *_SHARDING)
"""Seeded in a schedule, before a recipe issues it."""

ISSUED_RULES = _ISSUED
"""Seeded in the program that a recipe makes of a schedule."""

PROGRAM_RULES = (
    *_WHICH,
    *_MESSAGES,
    *_ISSUED,
    *_CALLS,
    *_GRADIENTS,
    *_VERSIONS,
    *_MEMORY,
    *_SHARDING,
)
"""Seeded in a program."""
