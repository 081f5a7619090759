"""Messages about models, versions and aliases that a repository doesn't have."""

from collections.abc import Collection, Mapping, Sequence

from millstream.inference.errors import ModelConfigError
from millstream.schemas.wording import meant

MOST_LISTED = 10


def listed(names: Collection[object]) -> str:
    """The names, the last ones of them if they are many."""
    if not names:
        return "none"
    shown = ", ".join(str(name) for name in list(names)[-MOST_LISTED:])
    return shown if len(names) <= MOST_LISTED else f"{len(names):,}, the last ones {shown}"


def no_such_model(name: str, place: str, names: Sequence[str] | None) -> ModelConfigError:
    """`names`: of the models that are there; None: the repository itself is not there."""
    there = "no such folder" if names is None else listed(sorted(names))
    return ModelConfigError(
        f"model repository {place} has no model `{name}` (there: {there}).{meant(name, names or [])} Check `model.name` and "
        f"`model.repository`."
    )


def no_such_version(name: str, version: int, place: str, versions: Sequence[int]) -> ModelConfigError:
    """`versions`: those that are there."""
    return ModelConfigError(f"model `{name}` has no version {version} in {place} (there: {listed(versions)}).")


def no_such_alias(
    name: str, alias: str, place: str, aliases: Mapping[str, int], versions: Sequence[int]
) -> ModelConfigError:
    """`aliases`, `versions`: those that are there."""
    known = ", ".join(f"{each} ({version})" for each, version in sorted(aliases.items())[:MOST_LISTED]) or "none"
    return ModelConfigError(
        f"{place}: model `{name}` has no alias `{alias}` (aliases: {known}; versions: {listed(versions)}).{meant(alias, aliases)}"
    )
