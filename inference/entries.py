"""Lists of names: the entries of a vocabulary, and the classes of an output. They are in config.yaml, or in a file beside it."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from millstream.inference.errors import ModelConfigError
from millstream.schemas import git_lfs
from millstream.schemas.wording import shown

_STRICTLY = "Remove it. If events have it, too, write the entries as a list in config.yaml, in quotes."
_AS_LIST = " If the empty text is an entry, write the entries as a list in config.yaml, with '' for it."

Entries = str | Sequence[object]
"""The name of a file with one entry per line, or the entries."""


def read_entries(given: Entries, folder: Path, place: str, *, empty_text: bool = False) -> tuple[str, ...]:
    """The entries, in their order.

    Args:
        given: the option's value.
        folder: the model's, which has the file.
        place: the option's, for messages.
        empty_text: whether an entry of a list may be empty. In a file, it looks like a line that is empty by mistake.

    Raises:
        ModelConfigError: the file can't be read, an entry is empty, not a text, or there twice, or one of a file has white space
            at an end, which nobody sees there.
    """
    if isinstance(given, str):
        return _checked(
            _lines(file_beside(given, folder, place), place), place, "line", advice=_AS_LIST if empty_text else ""
        )
    for number, entry in enumerate(given, start=1):
        if isinstance(entry, bool) or not isinstance(entry, str | int):
            raise ModelConfigError(
                f"{place}: expected texts or whole numbers, found {shown(entry)} at entry {number}. {_advice(entry)}"
            )
    return _checked([str(entry) for entry in given], place, "entry", empty_text=empty_text)


def _advice(entry: object) -> str:
    """What to write in place of an entry that is neither a text nor a whole number."""
    if isinstance(entry, float) and entry.is_integer():
        return f"Write {int(entry)}: pandas makes floats of whole numbers where one is missing, but events have these."
    if isinstance(entry, dict) and len(entry) == 1:
        return "A text with a colon in it needs quotes."
    return "Put a text such as no in quotes."


def file_beside(name: str, folder: Path, place: str) -> Path:
    """The path of a file in the model's folder. Raises ModelConfigError if it is not there, or elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:  # config.yaml may come from others
        raise ModelConfigError(f"{place}: expected the name of a file in {folder}, found {name!r}. Put the file there.")
    if not (folder / path).is_file():  # opening a named pipe would block forever
        raise ModelConfigError(f"{place}: {_no_file(folder / path)}")
    if not (found := (folder / path).resolve()).is_relative_to(folder.resolve()):
        raise ModelConfigError(
            f"{place}: expected a file in {folder}, found at {folder / path} a link to {found}. Put the file itself there."
        )
    return folder / path


def _no_file(path: Path) -> str:
    """What is in place of a file, and what to do."""
    if not path.exists() and not path.is_symlink():
        return f"expected a file, found none at {path}. Put the file there."
    found = "something else, such as a named pipe" if path.exists() else "a link that leads to no file"
    if path.is_dir():
        found = "a folder"
    return f"expected a file at {path}, found {found}. Put the file itself there."


def _lines(path: Path, place: str) -> list[str]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelConfigError(
            f"{place}: expected UTF-8 text in {path}, found the byte 0x{error.object[error.start]:02x}. Save it as UTF-8."
        ) from None
    except OSError as error:
        raise ModelConfigError(f"{place}: {path} can't be read: {error.strerror}.") from None
    if text.startswith(git_lfs.HEAD):
        raise ModelConfigError(f"{place}: expected entries in {path}, found {git_lfs.FOUND}.")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    for number, line in enumerate(lines, start=1):
        if line != line.strip() and not line.isspace():
            raise ModelConfigError(
                f"{place}: expected entries without white space before or behind them, found {shown(line)} at line {number} of "
                f"{path}. {_STRICTLY}"
            )
    return lines if lines[-1] else lines[:-1]


def _checked(
    entries: Sequence[str], place: str, unit: str, *, empty_text: bool = False, advice: str = ""
) -> tuple[str, ...]:
    """The entries. `unit`: what messages count. `advice`: on an empty entry."""
    if not entries:
        raise ModelConfigError(f"{place}: expected at least one entry, found none.")
    first: dict[str, int] = {}
    for number, entry in enumerate(entries, start=1):
        if not entry and not empty_text:
            raise ModelConfigError(f"{place}: expected an entry at {unit} {number}, found an empty text.{advice}")
        if first.setdefault(entry, number) != number:
            raise ModelConfigError(
                f"{place}: expected each entry once, found {shown(entry)} at {unit} {first[entry]} and at {unit} {number}. "
                f"Keep one."
            )
    return tuple(entries)
