"""The entry point: the group of commands, and what the process answers with.

Commands are loaded when they are used, so that ``--help`` costs only click.
click answers 1 to an interrupt and to a crash; here 1 means *violated*, so both
are caught and answered with their own status.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from pipeproof import __version__
from pipeproof.cli.crash import report_crash

UNUSABLE, INTERNAL, INTERRUPTED = 2, 4, 130

# name -> (module with a click command called `command`, one line of help)
COMMANDS = {
    "check": (
        "pipeproof.cli.check",
        "Check schedules and programs: holds, violated or undetermined.",
    ),
    "compare": (
        "pipeproof.cli.compare",
        "Put schedules side by side: verdict, time, memory, messages.",
    ),
    "prove": (
        "pipeproof.cli.prove",
        "Prove specs and known schedules for every size.",
    ),
    "faults": (
        "pipeproof.cli.faults",
        "Break healthy schedules and programs by rule, and see what is caught.",
    ),
    "shrink": (
        "pipeproof.cli.shrink",
        "Cut a violated input to the smallest that fails the same way.",
    ),
    "convert": (
        "pipeproof.cli.convert",
        "Write what a file holds as a program in JSON, or as a torch CSV.",
    ),
    "schedules": ("pipeproof.cli.schedules", "List the known schedules and what they claim."),
    "reproduce": (
        "pipeproof.cli.reproduce",
        "Compute published figures again, and put ours beside them.",
    ),
    "new": ("pipeproof.cli.new", "Write a commented spec to start from."),
}


class _Lazy(click.Group):
    """A group that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Exit status: 0 all hold, 1 something is violated, 2 bad usage or input, "
    "3 something is undetermined, 4 internal error, 5 nothing to check, 130 interrupted.",
)
@click.version_option(__version__, prog_name="pipeproof")
def group() -> None:
    """Prove or refute pipeline-parallel training schedules, before a GPU is touched."""


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        status = group.main(standalone_mode=False)
        if sys.stdout is not None:  # None where the shell closed it
            sys.stdout.flush()
    except click.exceptions.Abort:
        status = INTERRUPTED
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (BrokenPipeError, SystemExit):
        # The reader went away (`| head`): not an error, and not a verdict either.
        # click turns it into an exit of 1, and exits by itself for nothing else.
        _drop_output()
        status = INTERRUPTED
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:
        # Inputs that cannot be read are targets with an error: this is the output.
        _drop_output()
        click.echo(f"pipeproof: the report cannot be written: {error.strerror}", err=True)
        status = UNUSABLE
    except Exception as error:
        report_crash(error)
        status = INTERNAL
    sys.exit(status if isinstance(status, int) else 0)


def _drop_output() -> None:
    """Let what is left of standard output go nowhere, or closing it fails again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
