"""Small plans that hold everywhere, for faults to be put in."""

from __future__ import annotations

GPIPE = """
0F0, 0SEND_F0, 0F1, 0SEND_F1, 0RECV_B0, 0B0, 0RECV_B1, 0B1
1RECV_F0, 1F0, 1RECV_F1, 1F1, 1B0, 1SEND_B0, 1B1, 1SEND_B1
"""

SPLIT = """
0F0, 0SEND_F0, 0F1, 0SEND_F1, 0RECV_B0, 0I0, 0W0, 0RECV_B1, 0I1, 0W1
1RECV_F0, 1F0, 1RECV_F1, 1F1, 1I0, 1SEND_B0, 1W0, 1I1, 1SEND_B1, 1W1
"""

REDUCED = """
0F0, 0SEND_F0, 0F1, 0SEND_F1, 0RECV_B0, 0B0, 0RECV_B1, 0B1, 0REDUCE_GRAD
1RECV_F0, 1F0, 1RECV_F1, 1F1, 1B0, 1SEND_B0, 1B1, 1SEND_B1, 1REDUCE_GRAD
"""

SHARDED = """
0UNSHARD, 0F0, 0SEND_F0, 0F1, 0SEND_F1, 0RECV_B0, 0B0, 0RECV_B1, 0B1, 0REDUCE_GRAD, 0RESHARD
1UNSHARD, 1RECV_F0, 1F0, 1RECV_F1, 1F1, 1B0, 1SEND_B0, 1B1, 1SEND_B1, 1REDUCE_GRAD, 1RESHARD
"""

CHAIN = """
0F0, 0SEND_F0, 0RECV_B0, 0B0
1RECV_F0, 1F0, 1SEND_F0, 1RECV_B0, 1B0, 1SEND_B0
2RECV_F0, 2F0, 2B0, 2SEND_B0
"""


def changed(plan: str, old: str, new: str) -> str:
    """The plan with one place written differently."""
    assert plan.count(old) == 1, f"{old!r} stands {plan.count(old)} times"
    return plan.replace(old, new)
