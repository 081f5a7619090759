"""The types of the paths that are read, in JSON without a schema. Each follows from all uses of the path."""

from collections.abc import Sequence
from typing import NamedTuple

from millstream.consumers.decode.lookup_keys import key_fields, used_lookups
from millstream.consumers.decode.named_fields import included_at, override_fields
from millstream.consumers.decode.time_forms import read_as_time, written
from millstream.consumers.errors import PlanError
from millstream.inference.casts import LEAVES, WORDS, Cast
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import both_take, merged_paths
from millstream.inference.times import Format, Time
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.decoded import Decoder
from millstream.schemas.decoding import open_decoder
from millstream.schemas.errors import ContradictingPaths
from millstream.schemas.lookup_columns import looked_up
from millstream.schemas.paths import Step, parse_path, place_of
from millstream.schemas.store import Schema, SchemaStore
from millstream.schemas.wording import Loc, dotted

# Type in JSON without a schema -> the type that an option states. `any` takes texts and whole numbers, as event IDs are.
_STATED = {leaf: stated for stated, leaf in LEAVES.items()} | {"scalar": "any"}

_EVENT_TIME: Loc = ("input", "event_time")
_TEXT: Format = "iso8601"
_NUMBER: Format = "milliseconds"


class _Use(NamedTuple):
    """A use of a path."""

    path: str
    type: str  # that it needs, in JSON without a schema
    name: str  # for messages
    takes_cast: bool = False  # whether the option `type` can stand beside the field
    is_time: bool = False  # whether the mapping reads the field as a time


class PathTypes:
    """The types of the paths that a decoder reads: for models, and for Millstream itself.

    With a schema, the types of its fields count, and only the paths are of use.
    """

    def __init__(self, pipeline: Pipeline, schema: Schema | None, models: Sequence[ModelVersion]) -> None:
        """Args:
        pipeline: the pipeline file's settings.
        schema: of the events; None: JSON without one.
        models: all that the decoder reads for.
        """
        self.types = merged_paths([model.signature for model in models])
        self._pipeline = pipeline
        self._schema = schema
        self._of_any_type: set[str] = set()
        self._uses = [
            _Use(
                path,
                entry.leaf(conversion),
                f"tensor `{entry.tensor}` of model `{model.name}`, version {model.version}",
                takes_cast=conversion.splitter is None and isinstance(conversion.converter, Cast | None),
                is_time=isinstance(conversion.converter, Time),
            )
            for model in models
            for entry in model.signature.inputs
            for path, conversion in entry.reads
            if looked_up(path) is None
        ]
        self._places = {  # of each path that the models read, for messages
            path: entry.mapped_at or f"{model.place_at(entry.line)}: tensor `{entry.tensor}`"
            for model in models
            for entry in model.signature.inputs
            for path, _ in entry.reads
        }

    def add_options(self, models: Sequence[ModelVersion]) -> None:
        """Add the paths that options of the pipeline file name.

        Args:
            models: all whose look-ups are made.

        Raises:
            PlanError: there is no schema, and two uses of a path need types that no value can have at once.
        """
        options = self._pipeline.input
        if options.event_id is not None:
            self._add(("input", "event_id"), options.event_id, "scalar")
        if options.event_time is not None:
            self._add(_EVENT_TIME, options.event_time, self._time_type(options.event_time))
        used = used_lookups(models)
        for option, path, lookup in key_fields(self._pipeline):
            if lookup in used:
                self._add(option, path, "scalar")
        for path in override_fields(self._pipeline):
            self._add_any(path, "mixed")  # overrides name values as texts
        if self._pipeline.batch.cost is not None:
            self._add_any(self._pipeline.batch.cost, "float64")

    def open_decoder(self, store: SchemaStore) -> Decoder:
        """The decoder that reads the paths. Raises SchemaError, and PlanError if two paths contradict each other."""
        try:
            if self._schema is None:
                self._share_among_items()
            return open_decoder(self._pipeline.input.format, store, self._schema, self.types)
        except ContradictingPaths as error:
            raise PlanError(f"{self._places.get(error.path, self._pipeline.named)}: {error}") from None

    def _share_among_items(self) -> None:
        """Give paths to items of one list one type, if one of them takes texts and whole numbers: it follows the other's type."""
        at_places: dict[tuple[Step, ...], list[str]] = {}
        for path in self.types:
            at_places.setdefault(place_of(parse_path(path).steps), []).append(path)
        for paths in at_places.values():
            types = {self.types[path] for path in paths}
            if "scalar" in types and len(types) == 2 and (shared := both_take(*types)):
                self.types |= dict.fromkeys(paths, shared)

    def include(self) -> list[str]:
        """Add the fields that `output.include` names.

        Returns:
            these fields.

        Raises:
            PlanError: there is no schema, and the type of a field isn't known, or contradicts another use; or there is a schema,
                and a type is stated, too.
        """
        included = self._pipeline.output.include
        unknown: list[str] = []  # fields whose type nothing says
        for path, stated in included.items():
            option = included_at(self._pipeline, path)
            place = self._pipeline.at(*option)
            if self._schema is not None and stated is not None:
                raise PlanError(
                    f"{place}: expected no type, because schema `{self._schema.name}` has one for `{path}`, found {stated}. "
                    f"Write a list of fields: include: [{', '.join(included)}]"
                )
            if self._schema is None:
                self._refuse_container(path, place)
            if stated is not None:
                self._add(option, path, LEAVES[stated])
            elif self._schema is not None:
                self.types.setdefault(path, "string")  # of no use: the schema has the type
            elif path not in self.types and not self._add_item(path):
                unknown.append(path)
        if unknown:
            raise PlanError(self._without_type(unknown))
        return list(included)

    def _add_item(self, path: str) -> bool:
        """Add a path to items of a list if the type of other items is known: all items have one type. Returns whether it is."""
        place = place_of(parse_path(path).steps)
        type_ = next((known for other, known in self.types.items() if place_of(parse_path(other).steps) == place), None)
        if type_ is not None:
            self.types[path] = type_
        return type_ is not None

    def _without_type(self, unknown: Sequence[str]) -> str:
        """The message about fields of `output.include` whose type nothing says."""
        included = self._pipeline.output.include
        named = ", ".join(f"`{path}`" for path in unknown)
        written = ", ".join(
            f"{_key(path)}: {stated or _STATED.get(self.types.get(path, ''), 'TYPE')}"
            for path, stated in included.items()
        )
        these = "this field" if len(unknown) == 1 else "these fields"
        return (
            f"{self._pipeline.at(*included_at(self._pipeline, unknown[0]))}: expected the type of {named}, because there is no "
            f"`input.schema` and the model doesn't read {these}; found none. Write include: {{{written}}}, and for TYPE what the "
            f"events have there: {', '.join(LEAVES)}."
        )

    def _refuse_container(self, path: str, place: str) -> None:
        """Refuse an object or a list of which another path reads a part. Raises PlanError."""
        steps = parse_path(path).steps
        for other in self.types:
            inner = parse_path(other).steps
            if len(inner) > len(steps) and inner[: len(steps)] == steps:
                found = "an object" if isinstance(inner[len(steps)], str) else "a list"
                raise PlanError(
                    f"{place}: expected a path to a value, because predictions copy values and lists of values, but no objects; "
                    f"found `{path}`, which is {found}: `{other}` is read, too. Name each value in it, such as `{other}`."
                )

    def _time_type(self, path: str) -> str:
        stated = self._pipeline.input.event_time_format
        is_text = stated == "iso8601" or (stated is None and self.types.get(path) == "string")
        return "string" if is_text else "float64"

    def _add_any(self, path: str, type_: str) -> None:
        """Add a use that takes any type; without another use, it is this one."""
        if path not in self.types:
            self.types[path] = type_
            self._of_any_type.add(path)

    def _add(self, option: Loc, path: str, wanted: str) -> None:
        if path in self._of_any_type:
            self._of_any_type.remove(path)
            del self.types[path]
        known = self.types.setdefault(path, wanted)
        both = both_take(known, wanted)
        if both is None and self._schema is None:
            raise PlanError(self._two_types(option, path, wanted))
        self.types[path] = both or known
        self._uses.append(_Use(path, wanted, f"`{dotted(option)}`"))
        self._places.setdefault(path, self._pipeline.at(*option))

    def _two_types(self, option: Loc, path: str, wanted: str) -> str:
        """The message about an option that needs a type which contradicts another use of the path."""
        uses = [use for use in self._uses if use.path == path]
        other = next(use for use in uses if both_take(use.type, wanted) is None)
        advice = (
            self._one_form(option, path, uses)
            or self._time_of_mapping(option, path, wanted, uses)
            or "Let one of them read another field."
        )
        if option[:2] == ("output", "include") and all(use.takes_cast or both_take(use.type, "mixed") for use in uses):
            advice = f"Write `{_key(path)}: {_STATED[other.type]}` here."
            if other.type != "mixed":
                advice += (
                    f" If the events have both types there, write `any` in both places: `type: any` beside the field in the "
                    f"mapping, and `{_key(path)}: any` here."
                )
        return (
            f"{self._pipeline.at(*option)}: expected one type of field `{path}` for all that read it, found {WORDS[wanted]} "
            f"for `{dotted(option)}` and {WORDS[other.type]} for {other.name}. {advice}"
        )

    def _one_form(self, option: Loc, path: str, uses: Sequence[_Use]) -> str:
        """How to read a field in one form that all its uses read as a time; empty: one of them doesn't."""
        takes_time = option == _EVENT_TIME or option[:2] == ("output", "include")
        if not takes_time or not all(use.is_time or use.name == f"`{dotted(_EVENT_TIME)}`" for use in uses):
            return ""
        text, number = (
            written(
                form,
                as_event_time=path == self._pipeline.input.event_time,
                in_mapping=any(use.is_time for use in uses),
                included_as=_key(path) if self._pipeline.output.include.get(path) else "",
            )
            for form in (_TEXT, _NUMBER)
        )
        return (
            f"All of them must read a time in one form. If the events have text, write {text}. If they have numbers, such as "
            f"milliseconds, write {number}."
        )

    def _time_of_mapping(self, option: Loc, path: str, wanted: str, uses: Sequence[_Use]) -> str:
        """How the mapping reads a field of times as text, as the event time does; empty: another use is in the way."""
        of_tensors = [use for use in uses if both_take(use.type, wanted) is None]
        if option != _EVENT_TIME or wanted != "string" or {use.type for use in of_tensors} - {"int64", "float64"}:
            return ""
        if not all(use.takes_cast for use in of_tensors):
            return ""
        return f"For tensors, {read_as_time(_key(path))}, in config.yaml (`millstream docs models#times`)."


def _key(path: str) -> str:
    """The path as a key in YAML."""
    return f'"{path}"' if "[" in path else path
