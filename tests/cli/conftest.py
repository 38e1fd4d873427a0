"""The command line as a user meets it: arguments in, status and two streams out."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pipeproof.cli.main import main


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str


Run = Callable[..., Answer]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("check", path, stdin=b"...")``: the real entry point, in this process."""

    def call(*arguments: Any, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "argv", ["pipeproof", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        streams = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return Answer(caught.value.code, streams.out, streams.err)

    return call


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A check switches the collector off; the other tests want it on."""
    yield
    gc.enable()
