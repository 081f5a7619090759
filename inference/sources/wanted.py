"""Finds the version that a pipeline names: by its number, as the latest, by an alias, or as the only one."""

from collections.abc import Callable, Mapping

from millstream.inference.errors import ModelConfigError
from millstream.inference.repository import TRITON_FILE
from millstream.inference.sources.interface import LATEST, ModelSource, Wanted
from millstream.inference.sources.no_version import listed, no_such_alias


def version_of(
    name: str,
    wanted: Wanted,
    place: str,
    *,
    versions: Callable[[], Mapping[int, str]],
    aliases: Callable[[], Mapping[str, int]],
) -> int:
    """The version's number. A number is not looked up: the repository is asked for it when it is fetched.

    Args:
        name: the model's.
        wanted: the version, as the pipeline names it.
        place: begins messages.
        versions: lists the model's versions.
        aliases: lists the model's aliases.

    Raises:
        ModelConfigError: there is no such version or alias; or none is named, and there are several.
    """
    if isinstance(wanted, int):
        return wanted
    numbers = sorted(versions())
    if not numbers:
        raise ModelConfigError(f"{place}: model `{name}` has no version.")
    if wanted is None:
        if len(numbers) > 1:
            raise ModelConfigError(
                f"{place}: expected a `version`, because model `{name}` has several (there: {listed(numbers)}); found none. "
                f"Write `version: {numbers[-1]}`, `version: latest` or an alias under `model:`."
            )
        return numbers[0]
    if wanted == LATEST:
        return numbers[-1]
    known = aliases()
    if wanted not in known:
        raise no_such_alias(name, wanted, place, known, numbers)
    if known[wanted] not in numbers:
        raise ModelConfigError(
            f"{place}: the alias `{wanted}` of model `{name}` names version {known[wanted]}, which is not there (there: "
            f"{listed(numbers)}). Add the version, or let the alias name another."
        )
    return known[wanted]


def wanted_version(source: ModelSource, name: str, wanted: Wanted, place: str) -> int:
    """See `version_of`. Raises also SourceUnavailable.

    If none is named, and a Triton configuration lies beside the versions, its version policy counts.
    """
    if wanted is None and (found := _by_policy(source, name, place)) is not None:
        return found
    return version_of(name, wanted, place, versions=lambda: source.versions(name), aliases=lambda: source.aliases(name))


def _by_policy(source: ModelSource, name: str, place: str) -> int | None:
    """The only version that Triton would serve; None: there is no such configuration, or it would serve several."""
    versions = sorted(source.versions(name))
    content = source.beside(name, TRITON_FILE) if len(versions) > 1 else None
    if content is None:
        return None
    from millstream.inference.described.triton_config import chosen_by_policy  # noqa: PLC0415  (needs tritonclient)

    return chosen_by_policy(content, f"{place}: {TRITON_FILE} of `{name}`", versions)
