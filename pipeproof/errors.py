"""What goes wrong outside a program: input that cannot be read.

A defect of a schedule is never an exception; it is a finding with a verdict.
"""

from __future__ import annotations


class InputError(Exception):
    """A file that cannot be read as what it claims to be.

    ``message`` says what was found and what was expected; ``cause`` the likely
    reason and the next step. ``line`` and ``column`` (the cell of the row)
    count from 1; ``path`` is a JSON path.
    """

    def __init__(
        self,
        message: str,
        *,
        cause: str | None = None,
        line: int | None = None,
        column: int | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.line = line
        self.column = column
        self.path = path

    def located(self, file: str) -> str:
        """``file:row:cell: message`` (or ``file: path: message``)."""
        where = file
        if self.line is not None:
            where += f":{self.line}"
            if self.column is not None:
                where += f":{self.column}"
        if self.path is not None:
            where += f": {self.path}"
        text = f"{where}: {self.message}"
        return f"{text}\n  {self.cause}" if self.cause else text
