"""From a Python file to the definitions in it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from pipeproof.errors import InputError
from pipeproof.spec.definition import Definition


def load(text: str, path: str) -> list[Definition]:
    """Run a spec file; its definitions in the order of the file.

    Modules beside the file can be imported by it. InputError says what the file
    raises, with the line, or that it defines no schedule.
    """
    name = os.path.splitext(os.path.basename(path))[0]
    module = ModuleType(f"spec {name}")
    module.__file__ = path
    try:
        with _folder_first(os.path.dirname(os.path.abspath(path))):
            exec(compile(text, path, "exec"), module.__dict__)
    except SyntaxError as error:
        raise InputError(
            f"it is no Python: {error.msg}",
            line=error.lineno if error.filename == path else None,
        ) from None
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
        raise InputError(
            f"it raises {type(error).__name__} when it is run: {error}",
            cause="A spec is a Python file that defines schedules; it should do nothing else.",
            line=lines[-1] if lines else None,
        ) from error
    named = {id(v): v for v in vars(module).values() if isinstance(v, Definition)}
    # What is imported is judged only where the file has nothing of its own.
    own = [d for d in named.values() if d.file == path] or list(named.values())
    if not own:
        raise InputError(
            "found no schedule in this file; expected a function under @schedule",
            cause="Write one: from pipeproof.spec import schedule, or see pipeproof new.",
        )
    repeated = next((d for d in own if sum(o.name == d.name for o in own) > 1), None)
    if repeated is not None:
        raise InputError(
            f"found two schedules named {repeated.name}; expected different names",
            line=repeated.line or None,
        )
    return own


@contextmanager
def _folder_first(folder: str) -> Iterator[None]:
    before = list(sys.path)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path[:] = before
