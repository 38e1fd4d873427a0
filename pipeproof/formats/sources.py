"""From command-line arguments to texts: files, folders and standard input.

Nothing is opened that is no regular file: a pipe may never end and reading a
device may do something. What cannot be read is a `Failure`, one of the answers
beside the others, so that one bad file does not hide the rest.
"""

from __future__ import annotations

import difflib
import os
import stat
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pipeproof.errors import InputError
from pipeproof.formats.json_formats import JSON_FORMATS, PROGRAM, detect_json, top_level_keys

STDIN = "-"

MAX_BYTES = 1 << 30
"""Largest input: more than any schedule, and still within memory."""

_EXTENSIONS: Mapping[str, tuple[str, ...]] = {
    ".csv": ("torch-csv",),
    ".executed.txt": ("torch-executed",),
    ".json": tuple(JSON_FORMATS),
    ".jsonl": ("megatron",),
    ".py": ("spec",),
}
"""The formats of each extension; where there are several, the contents say which."""

FORMATS: tuple[str, ...] = tuple(f for formats in _EXTENSIONS.values() for f in formats)
"""The values of ``--from``."""

# UTF-32's little-endian mark begins with UTF-16's, so it must be tried first.
_MARKS: tuple[tuple[bytes, str], ...] = (
    (BOM_UTF32_LE, "UTF-32"),
    (BOM_UTF32_BE, "UTF-32"),
    (BOM_UTF16_LE, "UTF-16"),
    (BOM_UTF16_BE, "UTF-16"),
)

NAMED = "named schedule"
"""The format of a source that is a schedule's name and no file."""

_NO_SUCH_FILE = "no such file or folder"
_SPEC_MARK = b"pipeproof.spec"  # what a file must mention to be run as found in a folder
_SNIFFED = 4096  # bytes of standard input in which its first character must stand
_ROW_STARTS = b"0123456789(,"


@dataclass(frozen=True, slots=True)
class Source:
    """One input: ``file`` as given (or the path found in a folder), its bytes and format."""

    file: str
    data: bytes
    format: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An argument that cannot be read, and why."""

    file: str
    error: InputError


def gather(
    arguments: Sequence[str],
    *,
    format: str | None,
    stdin: Callable[[], bytes],
    names: Collection[str] = (),
) -> Iterator[Source | Failure]:
    """The inputs that the arguments name, each read when it is asked for.

    ``format`` is the one asked for with ``--from``, for all of them; without
    it the extension says, and where it is ``.json`` the contents. In a folder
    ``format`` selects the files of that format. An argument that is one of
    ``names``, and no file, is a source of the format ``NAMED`` without bytes.
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    stdin_read = False
    for argument in arguments:
        if argument == STDIN:
            yield _from_stdin(format, stdin, stdin_read)
            stdin_read = True
        elif _is_folder(argument):
            yield from _from_folder(argument, format)
        elif argument in names and format is None and not os.path.lexists(argument):
            yield Source(argument, b"", NAMED)
        else:
            yield _missing_name(_from_file(argument, format), names)


def _missing_name(found: Source | Failure, names: Collection[str]) -> Source | Failure:
    """Of a file that is not there, the name that was perhaps meant."""
    bare = "." not in found.file and os.sep not in found.file
    if isinstance(found, Failure) and found.error.message == _NO_SUCH_FILE and names and bare:
        close = difflib.get_close_matches(found.file, names, 3, 0.6)
        meant = f"did you mean {' or '.join(close)}?" if close else "check the spelling"
        cause = f"{meant} (pipeproof schedules lists the names)"
        return Failure(found.file, InputError("no such file, folder or schedule", cause=cause))
    return found


# --- standard input ------------------------------------------------------------


def _from_stdin(
    format: str | None, stdin: Callable[[], bytes], already_read: bool
) -> Source | Failure:
    try:
        if already_read:
            raise InputError("standard input can be read once", cause="give - once")
        data = stdin()
        if len(data) > MAX_BYTES:
            raise _too_large()
        if not data.strip():
            raise InputError("nothing stands on standard input", cause="expected a schedule")
        return Source(STDIN, data, format or _unmistakable_format(data))
    except InputError as error:
        return Failure(STDIN, error)
    except OSError as error:
        return Failure(STDIN, InputError(f"standard input cannot be read: {_reason(error)}"))


def _unmistakable_format(data: bytes) -> str:
    first = data[:_SNIFFED].removeprefix(BOM_UTF8).lstrip()[:1]
    if first == b"{":
        return _json_format(data)
    if first and first in _ROW_STARTS:
        return "torch-csv"
    decode(data)  # what is no text in UTF-8 says so
    raise InputError(
        "the format of standard input is not known",
        cause=f"say which it is with --from: {', '.join(FORMATS)}",
    )


# --- files and folders ---------------------------------------------------------


def _is_folder(path: str) -> bool:
    try:
        return os.path.isdir(path)
    except ValueError:  # a NUL character; reading it as a file will say so
        return False


def _from_folder(folder: str, format: str | None) -> Iterator[Source | Failure]:
    failures: list[Failure] = []
    found = sorted(_files_within(folder, format, failures), key=_in_reading_order)
    yield from failures
    nothing = not failures
    for path in found:
        item = _from_file(path, None)
        if isinstance(item, Source) and item.format == "spec" and _SPEC_MARK not in item.data:
            continue  # a Python file of another kind: never run
        if isinstance(item, Failure) or format in (None, item.format):
            nothing = False
            yield item
    if nothing:
        endings = [e for e, formats in _EXTENSIONS.items() if format is None or format in formats]
        of = f" in the format {format}" if format else ""
        yield Failure(
            folder,
            InputError(
                f"no file to check in this folder, expected {' or '.join(endings)}{of}",
                cause="hidden files and folders are skipped; name a file to have it read",
            ),
        )


def _files_within(folder: str, format: str | None, failures: list[Failure]) -> Iterator[str]:
    def note(error: OSError) -> None:
        failures.append(Failure(str(error.filename or folder), _unreadable(error)))

    for parent, folders, files in os.walk(folder, onerror=note):  # links are not followed
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            known = _formats_of(name)
            if known and (format is None or format in known) and not name.startswith("."):
                yield os.path.join(parent, name)


def _in_reading_order(path: str) -> list[str]:
    # By components: a folder's files stay together, whatever its name holds.
    return path.split(os.sep)


def _from_file(path: str, format: str | None) -> Source | Failure:
    try:
        _require_regular(os.stat(path))  # first: a missing file is missing, whatever its name
        known = _formats_of(path)
        if format is None and not known:
            _refuse_extension(path)
        data = _read(path)
        return Source(path, data, format or (known[0] if len(known) == 1 else _json_format(data)))
    except InputError as error:
        return Failure(path, error)
    except OSError as error:
        return Failure(path, _unreadable(error))
    except ValueError:  # a NUL character, or half a surrogate pair
        return Failure(path, InputError("no file can have this name"))


def _formats_of(path: str) -> tuple[str, ...]:
    name = path.lower()
    return next((f for ending, f in _EXTENSIONS.items() if name.endswith(ending)), ())


def _json_format(data: bytes) -> str:
    try:
        return detect_json(top_level_keys(decode(data)))
    except InputError:  # no text: its reader says so
        return PROGRAM


def _refuse_extension(path: str) -> NoReturn:
    ending = os.path.splitext(path)[1]
    found = f"the extension {ending} says no format" if ending else "the name has no extension"
    raise InputError(
        f"{found}, expected {', '.join(_EXTENSIONS)}",
        cause=f"say which format it is with --from: {', '.join(FORMATS)}",
    )


def _read(path: str) -> bytes:
    # The file may have become a pipe meanwhile: opening it must not wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        _require_regular(os.fstat(file.fileno()))
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _too_large()
    return data


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = next((name for test, name in _SPECIAL if test(status.st_mode)), "no regular file")
        raise InputError(
            f"this is {what}, expected a file", cause="to read from a pipe, pass it to -"
        )
    if status.st_size > MAX_BYTES:
        raise _too_large()


_SPECIAL: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def _too_large() -> InputError:
    return InputError(
        f"the input is larger than {MAX_BYTES >> 30} GiB",
        cause="a schedule of ten million actions is smaller: this is probably another file",
    )


def _unreadable(error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(_NO_SUCH_FILE, cause="check the spelling of the path")
    if isinstance(error, PermissionError):
        return InputError("permission denied", cause="this user may not read it")
    return InputError(f"it cannot be read: {_reason(error)}")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()


# --- text ----------------------------------------------------------------------


def decode(data: bytes) -> str:
    """The text of a file, UTF-8 with or without a byte-order mark."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            raise InputError(
                f"the file is {encoding}, by the mark at its start; expected UTF-8",
                cause="save it as UTF-8",
                line=1,
            )
    zero = data.find(0)
    if zero >= 0:
        raise InputError(
            f"found a zero byte at offset {zero}, expected text in UTF-8",
            cause="this is a binary file, or UTF-16 without a mark: save it as UTF-8",
            line=_line(data, zero),
        )
    start = len(BOM_UTF8) if data.startswith(BOM_UTF8) else 0
    try:
        return data[start:].decode() if start else data.decode()
    except UnicodeDecodeError as error:
        offset = start + error.start
        raise InputError(
            f"the byte 0x{data[offset]:02x} at offset {offset} is not UTF-8",
            cause="the file has another encoding, or is damaged: save it as UTF-8",
            line=_line(data, offset),
        ) from None


def _line(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1
