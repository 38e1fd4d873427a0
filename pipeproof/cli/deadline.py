"""A limit on the time that a user's own code may take."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from pipeproof.errors import InputError


class _Late(BaseException):
    """Raised into the running code; no ``except Exception`` of it can stop this."""


@contextlib.contextmanager
def deadline(seconds: float, what: str) -> Iterator[None]:
    """Run code of the user's: InputError when it takes longer than ``seconds``.

    What it prints goes to standard error, so that it cannot mix with a report.
    The limit needs a timer signal; where the system has none, there is no limit.
    """
    timed = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()

    def ring(number: int, frame: FrameType | None) -> None:
        raise _Late(frame.f_lineno if frame is not None else None)

    before = signal.signal(signal.SIGALRM, ring) if timed else None
    try:
        if timed:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except _Late:
        raise InputError(
            f"{what} takes longer than {seconds:g} seconds",
            cause="Does a loop never end? --time-limit allows more.",
        ) from None
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
