"""The file SHA256SUMS of a version: the checksum of each file, as `sha256sum` writes it."""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from millstream.inference.errors import ModelConfigError

CHECKSUMS_FILE = "SHA256SUMS"
COMPILED = "__pycache__"
"""The folder that Python writes when it runs a model. It belongs to no version."""
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](?:\./)?(.+)")
_PIECE = 1 << 20  # bytes read at a time
_MAKE = f"`cd VERSION && find . -type f ! -name {CHECKSUMS_FILE} -exec sha256sum {{}} + > {CHECKSUMS_FILE}`"

OnPiece = Callable[[int], object]
"""Called with the size of each piece of a file that was read."""
SumOf = Callable[[Path], str]
"""The checksum of a file."""


def files_of(folder: Path) -> list[Path]:
    """All files in the folder and below, sorted, relative to it. Raises ModelConfigError at a link that leads out of it."""
    whole = folder.resolve()
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not path.resolve().is_relative_to(whole):
            raise ModelConfigError(
                f"{path} is a link to {path.resolve()}. A version with {CHECKSUMS_FILE} holds all of its files: put the file "
                f"itself there."
            )
        if path.is_file() and COMPILED not in path.parts:
            found.append(path.relative_to(folder))
    return found


def sha256_of(path: Path, on_piece: OnPiece = lambda _: None) -> str:
    """The file's checksum, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            on_piece(len(piece))
    return digest.hexdigest()


def sums_of(folder: Path, sum_of: SumOf = sha256_of) -> dict[str, str]:
    """Each file -> its checksum. Paths are relative, with `/`."""
    return {path.as_posix(): sum_of(folder / path) for path in files_of(folder)}


def digest_of(sums: Mapping[str, str]) -> str:
    """One checksum for all files and their names."""
    lines = "".join(f"{sums[path]}  {path}\n" for path in sorted(sums))
    return hashlib.sha256(lines.encode()).hexdigest()


def check_sums(folder: Path, place: str, sum_of: SumOf = sha256_of) -> None:
    """Check the version against its SHA256SUMS, if it has that file.

    Args:
        folder: the version's.
        place: how messages name the version.
        sum_of: computes the checksum of a file, or knows it.

    Raises:
        ModelConfigError: a file differs, is missing or is not listed; or SHA256SUMS can't be read.
    """
    if not (folder / CHECKSUMS_FILE).is_file():
        return
    listed = read_sums((folder / CHECKSUMS_FILE), place)
    found = {path: digest for path, digest in sums_of(folder, sum_of).items() if path != CHECKSUMS_FILE}
    problems = [
        *(f"{path} is missing" for path in listed if path not in found),
        *(f"{path} is not listed" for path in found if path not in listed),
        *(
            f"{path} has {found[path]} and not {listed[path]}"
            for path in listed
            if path in found and found[path] != listed[path]
        ),
    ]
    if problems:
        more = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise ModelConfigError(
            f"{place}: its files are not those of {CHECKSUMS_FILE}: {'; '.join(problems[:3])}{more}. Upload the version again, "
            f"{CHECKSUMS_FILE} last. If the files are right, make that file anew: {_MAKE}."
        )


def read_sums(file: Path, place: str) -> dict[str, str]:
    """What the file lists: path -> checksum. Raises ModelConfigError."""
    try:
        lines = file.read_bytes().decode().splitlines()
    except UnicodeDecodeError:
        lines = ["(no text)"]
    listed: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        if line and match is None:
            raise ModelConfigError(
                f"{place}: {CHECKSUMS_FILE}, line {number}: expected a checksum of 64 digits, two spaces and a file's name. "
                f"Make the file with {_MAKE}."
            )
        if match is not None:
            listed[match[2]] = match[1].lower()
    return listed
