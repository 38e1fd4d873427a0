"""How a defect of pipeproof itself is reported."""

from __future__ import annotations

import os

import click


def report_crash(error: Exception, file: str | None = None) -> None:
    """Say on standard error that the fault is ours, and how to see more."""
    # Only a crash pays for the import.
    from pipeproof.report.style import escaped

    on = f" on {escaped(file)}" if file else ""
    click.echo(
        f"pipeproof: internal error{on}: {type(error).__name__}: {error}\n"
        "  This is a defect of pipeproof, not of your input. Please report it with the\n"
        "  command and the file; PIPEPROOF_TRACEBACK=1 shows where it happened.",
        err=True,
    )
    if os.environ.get("PIPEPROOF_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
