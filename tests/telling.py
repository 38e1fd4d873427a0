"""Programs told in a line an op, for tests to compare with what is expected."""

from __future__ import annotations

from collections import Counter

from pipeproof.program.notation import message_text, op_text, request_text
from pipeproof.program.programs import Program


def told(program: Program) -> list[list[str]]:
    """The ops of every lane in notation, ``0SEND_F0 =r`` where it posts request r
    and ``1F0 <r`` where it waits for it."""
    lanes = []
    for lane in program.lanes:
        lines = []
        for op in range(lane.first, lane.stop):
            text = op_text(program, op).partition(" ")[0]
            request = int(program.request[op])
            if request >= 0:
                text += f" ={request_text(program, request)}"
            waited = [request_text(program, r) for r in program.requests_of(op)]
            lines.append(" <".join([text, *waited]))
        lanes.append(lines)
    return lanes


def messages(program: Program) -> list[str]:
    """Every message row, ``0SEND_F0 0>1`` for a send from rank 0 to rank 1."""
    m = program.messages
    found = []
    for row in range(len(m.op)):
        ends = (m.rank[row], m.peer[row]) if m.send[row] else (m.peer[row], m.rank[row])
        found.append(f"{message_text(program, row)} {ends[0]}>{ends[1]}")
    return found


def unanswered(program: Program) -> Counter[tuple[int, int, int]]:
    """(source, destination, payload) of sends, less those of receives."""
    m = program.messages
    sends: Counter[tuple[int, int, int]] = Counter()
    columns = (m.send.tolist(), m.rank.tolist(), m.peer.tolist(), m.payload.tolist())
    for send, rank, peer, payload in zip(*columns, strict=True):
        sends[(rank, peer, payload) if send else (peer, rank, payload)] += 1 if send else -1
    return Counter({key: count for key, count in sends.items() if count})


def check_columns(program: Program) -> None:
    """What every program promises of its arrays (``Messages``, ``Waits``, ``Lane``)."""
    count = program.ops
    m, w = program.messages, program.waits
    for column in (program.kind, program.stage, program.microbatch, program.request):
        assert len(column) == count
    assert len(program.origin.line) == len(program.origin.column) == count
    assert [lane.first for lane in program.lanes] == [
        0,
        *(lane.stop for lane in program.lanes[:-1]),
    ]
    assert program.lanes[-1].stop == count
    for column in (m.send, m.rank, m.peer, m.payload, m.comm):
        assert len(column) == len(m.op)
    assert (m.op[1:] >= m.op[:-1]).all()
    assert (w.op[1:] >= w.op[:-1]).all()
    posted = program.request[program.request >= 0]
    assert sorted(posted.tolist()) == list(range(len(posted)))
    assert set(w.request.tolist()) <= set(posted.tolist())
    rank = [lane.rank for lane in program.lanes for _ in range(lane.first, lane.stop)]
    assert m.rank.tolist() == [rank[op] for op in m.op.tolist()]
    poster = {int(r): op for op, r in enumerate(program.request.tolist()) if r >= 0}
    for op, request in zip(w.op.tolist(), w.request.tolist(), strict=True):
        assert poster[request] < op and rank[poster[request]] == rank[op]
    assert not set(w.op.tolist()) & set(m.op.tolist())
