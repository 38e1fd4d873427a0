"""From arguments to texts: which files are read, as what, and which are refused."""

from __future__ import annotations

import importlib
import inspect
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.cli.reading import READERS, Reading
from pipeproof.errors import InputError
from pipeproof.formats import sources
from pipeproof.formats.sources import FORMATS, Failure, Source, decode, gather


def no_stdin() -> bytes:
    raise AssertionError("standard input was read")


def all_of(
    *arguments: Any, format: str | None = None, stdin: Callable[[], bytes] = no_stdin
) -> list[Source | Failure]:
    return list(gather([str(a) for a in arguments], format=format, stdin=stdin))


def read(argument: Any, format: str | None = None) -> Source:
    (source,) = all_of(argument, format=format)
    assert isinstance(source, Source), source
    return source


def refused(argument: Any, format: str | None = None) -> str:
    """The failure's message and cause."""
    (failure,) = all_of(argument, format=format)
    assert isinstance(failure, Failure), failure
    assert failure.file == str(argument)
    return f"{failure.error.message} | {failure.error.cause}"


def piped(data: bytes, format: str | None = None) -> Source | Failure:
    (source,) = all_of("-", format=format, stdin=lambda: data)
    assert source.file == "-"
    return source


# --- files -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.csv", "torch-csv"),
        ("a.b.CSV", "torch-csv"),
        ("a.json", "program-json"),
        ("a.jsonl", "megatron"),
        ("a.executed.txt", "torch-executed"),
        (".hidden.csv", "torch-csv"),  # named, so wanted
    ],
)
def test_the_extension_says_the_format(tmp_path: Path, name: str, format: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"0F0\r\n\xff")
    assert read(path) == Source(str(path), b"0F0\r\n\xff", format)


def test_formats() -> None:
    assert len(FORMATS) == len(set(FORMATS)) == 10
    assert set(FORMATS) == {*READERS, "spec"}
    assert {reader.module.replace("_", "-") for reader in READERS.values()} == {
        "torch-schedule",
        *FORMATS,
    } - {"torch-csv", "spec"}


@pytest.mark.parametrize("format", READERS)
def test_every_format_has_its_reader(format: str) -> None:
    reader = READERS[format]
    module = importlib.import_module(f"pipeproof.formats.{reader.module}")
    parameters = inspect.signature(getattr(module, reader.function)).parameters
    assert tuple(parameters) == ("text", "name", *reader.takes)
    assert all(hasattr(Reading(), name) for name in reader.takes)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ('{"programs": {}}', "program-json"),
        ('{"model": {}}', "program-json"),
        ('{"producer": "x", "class": 1}', "deepspeed"),
        ('{"producer": "x", "sched": 1}', "zero-bubble"),
        ('{"producer": "x", "cls": 1}', "dualpipe"),
        ('{"producer": "x", "per_rank": 1}', "chimera"),
        ('{"p4_m4_r0": 1}', "pipedream"),
        ('{"producer": "megatron-core", "schedule": 1}\n{}', "megatron"),
        # What is no object, or is not known, is refused as a program.
        ('{"producer": "x"}', "program-json"),
        ("[]", "program-json"),
        ("", "program-json"),
        ("\ufeff", "program-json"),
        ("a\0", "program-json"),
    ],
)
def test_the_contents_of_json_say_the_format(tmp_path: Path, text: str, format: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    assert read(path).format == format
    assert read(path, "chimera").format == "chimera"
    if text.startswith("{"):
        source = piped(text.encode())
        assert isinstance(source, Source) and source.format == format


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.py", "a"])
@pytest.mark.parametrize("format", FORMATS)
def test_the_format_asked_for_wins(tmp_path: Path, name: str, format: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"x")
    assert read(path, format).format == format


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.txt", "the extension .txt says no format | --from: torch-csv, torch-executed"),
        ("a.executed", "the extension .executed"),
        ("a", "no extension, expected .csv, .executed.txt, .json, .jsonl, .py"),
        (".csv.swp", "the extension .swp"),
    ],
)
def test_unknown_extensions_are_refused(tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / name
    path.write_text("0F0")
    for part in words.split("|"):
        assert part.strip() in refused(path)


def test_a_missing_file_is_missing_whatever_its_name(tmp_path: Path) -> None:
    for name in ("a.csv", "a.txt", "a.py", "a", "sub/a.csv"):
        assert "no such file or folder" in refused(tmp_path / name)
    assert "no such file" in refused("")


def test_names_that_no_file_can_have() -> None:
    assert "no file can have this name" in refused("a\0.csv")
    assert "no such file" in refused("\udcff.csv")  # a byte that is no UTF-8
    assert "cannot be read" in refused("a" * 5000 + ".csv")


def test_unknown_formats_are_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="unknown format 'csv'"):
        all_of("a.csv", format="csv")


def test_permission_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("0F0")

    def denied(*_: Any) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", denied)
    assert "permission denied" in refused(path)


def test_other_errors_have_their_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("0F0")

    def broken(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "open", broken)
    assert "cannot be read: input/output error" in refused(path)


def test_pipes_and_devices_are_not_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "a.csv"
    os.mkfifo(fifo)
    assert "a named pipe, expected a file" in refused(fifo)  # and does not wait for a writer
    assert "a named pipe" in refused(fifo, "torch-csv")
    link = tmp_path / "b.csv"
    link.symlink_to("/dev/zero")
    assert "a device, expected a file" in refused(link)
    assert "a device" in refused("/dev/zero", "torch-csv")


def test_a_file_that_became_a_pipe_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo, other = tmp_path / "a.csv", tmp_path / "b.csv"
    os.mkfifo(fifo)
    other.write_text("0F0")
    regular = os.stat(other)
    monkeypatch.setattr(os, "stat", lambda *_, **__: regular)
    (failure,) = gather([str(fifo)], format=None, stdin=no_stdin)
    assert isinstance(failure, Failure) and "a named pipe" in failure.error.message


def test_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)  # sparse: takes no space
    assert "larger than 1 GiB" in refused(path)
    monkeypatch.setattr(sources, "MAX_BYTES", 4)
    path.write_bytes(b"12345")
    assert "larger" in refused(path)
    path.write_bytes(b"1234")
    assert read(path).data == b"1234"


# --- folders -----------------------------------------------------------------------


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_folders_are_read_in_order(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a.json", "d.jsonl", "c/z.executed.txt", "c/a.csv", "c.csv", "B.csv")
    touch(tmp_path, "note.txt", "spec.py", "README", ".a.csv", ".git/a.csv", "c/.b.json")
    found = all_of(tmp_path)
    names = [os.path.relpath(source.file, tmp_path) for source in found]
    expected = ["B.csv", "a.json", "b.csv", "c/a.csv", "c/z.executed.txt", "c.csv"]
    expected.append("d.jsonl")
    assert names == [name.replace("/", os.sep) for name in expected]
    assert all(isinstance(s, Source) and s.data for s in found)


def test_a_format_selects_the_files_of_a_folder(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "a.json", "a.executed.txt")
    (found,) = all_of(tmp_path, format="torch-executed")
    assert found.file.endswith("a.executed.txt")


def test_in_a_folder_the_contents_of_json_count_too(tmp_path: Path) -> None:
    for name, key in (("a", "programs"), ("b", "class"), ("c", "cls"), ("d", "class")):
        (tmp_path / f"{name}.json").write_text(f'{{"{key}": 1}}')
    touch(tmp_path, "e.json", "f.csv")
    found = all_of(tmp_path, format="deepspeed")
    assert [os.path.basename(source.file) for source in found] == ["b.json", "d.json"]
    found = all_of(tmp_path, format="program-json")
    assert [os.path.basename(source.file) for source in found] == ["a.json", "e.json"]
    assert "expected .json in the format chimera" in refused(tmp_path, "chimera")


def test_a_hidden_folder_may_be_named(tmp_path: Path) -> None:
    touch(tmp_path, ".cases/a.csv")
    assert read(tmp_path / ".cases").file.endswith("a.csv")


def test_a_folder_without_any_is_a_failure(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "sub/.b.csv")
    assert "no file to check in this folder, expected .csv or .exec" in refused(tmp_path)
    assert "expected .json" in refused(tmp_path, "program-json")


def test_links_in_folders(tmp_path: Path) -> None:
    touch(tmp_path, "real/a.csv")
    (tmp_path / "real" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "real" / "b.csv").symlink_to(tmp_path / "real" / "a.csv")
    (tmp_path / "real" / "c.csv").symlink_to(tmp_path / "gone.csv")
    a, b, c = all_of(tmp_path / "real")
    assert isinstance(a, Source) and isinstance(b, Source) and a.data == b.data
    assert isinstance(c, Failure) and "no such file" in c.error.message


def test_an_unreadable_folder_does_not_hide_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "a.csv", "sub/b.csv")
    scandir = os.scandir

    def denied(path: str) -> Any:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    failure, source = all_of(tmp_path)
    assert isinstance(failure, Failure) and failure.file == str(tmp_path / "sub")
    assert "permission denied" in failure.error.message
    assert source.file == str(tmp_path / "a.csv")


def test_one_bad_argument_does_not_hide_the_rest(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "b.txt")
    found = all_of(tmp_path / "gone.csv", tmp_path / "b.txt", tmp_path / "a.csv")
    assert [type(f) for f in found] == [Failure, Failure, Source]


def test_files_are_read_when_asked_for(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", "b.csv")
    inputs = gather([str(tmp_path)], format=None, stdin=no_stdin)
    next(inputs)
    (tmp_path / "b.csv").write_text("later")
    source = next(inputs)
    assert isinstance(source, Source) and source.data == b"later"


# --- standard input ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "format"),
    [
        (b'{"programs": {}}', "program-json"),
        (b'\xef\xbb\xbf \n\t{"programs": {}}', "program-json"),
        (b"0F0,0F1\n", "torch-csv"),
        (b"\n\n(0SEND_F0;0RECV_B0)OVERLAP", "torch-csv"),
        (b",,0F0", "torch-csv"),
    ],
)
def test_unmistakable_standard_input(data: bytes, format: str) -> None:
    assert piped(data) == Source("-", data, format)


@pytest.mark.parametrize("data", [b"[1]", b'"F"', b"hello", b"\xef\xbb\xbfF0"])
def test_other_standard_input_needs_a_format(data: bytes) -> None:
    failure = piped(data)
    assert isinstance(failure, Failure)
    assert "not known" in failure.error.message and "--from" in str(failure.error.cause)
    assert piped(data, "torch-executed") == Source("-", data, "torch-executed")


def test_standard_input_that_is_no_text_says_so() -> None:
    failure = piped("0F0".encode("utf-16"))
    assert isinstance(failure, Failure) and "UTF-16" in failure.error.message


@pytest.mark.parametrize("data", [b"", b" \n"])
def test_empty_standard_input(data: bytes) -> None:
    failure = piped(data, "torch-csv")
    assert isinstance(failure, Failure) and "nothing" in failure.error.message


def test_large_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_BYTES", 4)
    failure = piped(b"0F0,0")
    assert isinstance(failure, Failure) and "larger" in failure.error.message


def test_standard_input_is_read_once() -> None:
    first, second = all_of("-", "-", stdin=lambda: b"0F0")
    assert isinstance(first, Source)
    assert isinstance(second, Failure) and "once" in second.error.message


def test_closed_standard_input() -> None:
    def closed() -> bytes:
        raise OSError(9, "Bad file descriptor")

    (failure,) = all_of("-", stdin=closed)
    assert isinstance(failure, Failure) and "bad file descriptor" in failure.error.message


# --- text --------------------------------------------------------------------------


def test_decode() -> None:
    assert decode(b"") == ""
    assert decode("0F0\r\nä".encode()) == "0F0\r\nä"
    assert decode(b"\xef\xbb\xbf0F0") == "0F0"


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        ("a".encode("utf-16"), 1, "UTF-16"),
        (b"\xfe\xff\0a", 1, "UTF-16"),
        ("a".encode("utf-32"), 1, "UTF-32"),
        (b"\0\0\xfe\xff\0\0\0a", 1, "UTF-32"),
        ("ab".encode("utf-16-le"), 1, "zero byte at offset 1"),
        (b"a\nb\nc\0", 3, "zero byte at offset 5"),
        (b"a\nb\xe4", 2, "0xe4 at offset 3 is not UTF-8"),
        (b"\xef\xbb\xbfa\n\xff", 2, "0xff at offset 5"),
        (b"\xed\xa0\x80", 1, "0xed at offset 0"),
        (b"\xc0\xaf", 1, "0xc0 at offset 0"),
    ],
)
def test_decode_refuses_what_is_no_utf8(data: bytes, line: int, words: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(data)
    assert words in caught.value.message
    assert caught.value.line == line
    assert "save it as UTF-8" in str(caught.value.cause)


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        text = decode(data)
    except InputError:
        return
    assert text.encode() == data.removeprefix(b"\xef\xbb\xbf")


def test_special_files_are_told_apart() -> None:
    names = {name for test, name in sources._SPECIAL if test(stat.S_IFSOCK)}
    assert names == {"a socket"}
