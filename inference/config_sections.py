"""The options of a model's config.yaml."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from millstream.inference.casts import EventType
from millstream.inference.signature import DTYPES, LARGEST_FLOAT16
from millstream.inference.times import Format, Part
from millstream.schemas.lookup_columns import LOOKUP_NAME
from millstream.schemas.wording import shown
from millstream.schemas.written_numbers import number_of

# Bounds for slips of the pen: the warm-up runs a batch of the largest size, which could take all memory.
MAX_EVENTS = 65_536  # of a batch


def _field(value: object) -> object:
    """The mapping that a path stands for."""
    if isinstance(value, str):
        return {"field": value}
    if not isinstance(value, dict | FieldOptions):
        raise ValueError(f"expected the path of a field, or a mapping with `field`, found {shown(value)}")
    return value


def _single(value: object) -> object:
    if not isinstance(value, str | int | float):
        found = "null or no value" if value is None else shown(value)
        raise ValueError(f"expected reject, nan or a value of the tensor, found {found}")
    return value


def as_number(value: object) -> object:
    """The number that a text writes, such as `-1e9`, which YAML leaves as a text. Any other value as it is."""
    number = number_of(value) if isinstance(value, str) else None
    return value if number is None else number


def _pad(value: object, info: ValidationInfo) -> object:
    return value if info.data.get("dtype") == "string" else as_number(value)


def _unknown(value: object) -> object:
    if value == "missing" or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    instead = ". For NaN, write `unknown: missing` and `missing: nan`" if str(value).lower() in {"nan", ".nan"} else ""
    raise ValueError(f"expected the index of other values, or missing, found {shown(value)}{instead}")


def _entries(value: object) -> object:
    if not isinstance(value, str | list | tuple):
        raise ValueError(f"expected the name of a file or a list of texts, found {shown(value)}")
    return value


_Entries = Annotated[Any, BeforeValidator(_entries)]


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # see `pipeline.sections.Section`


CONVERSIONS = {
    "type": ("type",),
    "time": ("time", "as"),
    "vocabulary": ("vocabulary", "unknown"),
    "tokenizer": ("tokenizer", "pair"),
}
"""Kind of conversion -> its options. A field has at most one kind."""


def _event_type(value: object) -> object:
    if isinstance(value, str) and value in DTYPES:
        words = ", ".join(get_args(EventType)[:-1])
        raise ValueError(
            f"expected {words} or {get_args(EventType)[-1]}: how an event has the value, found {shown(value)}. The tensor's type "
            f"is the input's `dtype: {value}`"
        )
    return value


def _time_format(value: object) -> object:
    if value in ("minutes", "hours", "weeks"):
        raise ValueError(
            f"expected {', '.join(get_args(Format)[:-1])} or {get_args(Format)[-1]}, found {shown(value)}. A duration is a plain "
            "number: leave `time` out"
        )
    return value


def _lookup(value: object) -> object:
    if not isinstance(value, str) or not LOOKUP_NAME.fullmatch(value):
        raise ValueError(f"expected the name of a look-up in the pipeline file, such as customer, found {shown(value)}")
    return value


class FieldOptions(_Options):
    """Where one field's values are, and how they become elements of the tensor."""

    missing: Annotated[Any, BeforeValidator(_single)] = "reject"
    type: Annotated[EventType | None, BeforeValidator(_event_type)] = None
    time: Annotated[Format | None, BeforeValidator(_time_format)] = None
    part: Part | None = Field(default=None, alias="as")
    vocabulary: _Entries = None
    unknown: Annotated[int | Literal["missing"] | None, BeforeValidator(_unknown)] = None
    tokenizer: str | None = None
    pair: str | None = None
    fallback: str | None = None
    lookup: Annotated[str | None, BeforeValidator(_lookup)] = Field(default=None, alias="from")

    @model_validator(mode="after")
    def _one_conversion(self) -> "FieldOptions":
        kinds = {
            "type": self.type is not None,
            "time": self.time is not None or self.part is not None,
            "vocabulary": self.vocabulary is not None,
            "tokenizer": self.tokenizer is not None,
        }
        given = [name for name, there in kinds.items() if there]
        if len(given) > 1 and (given != ["type", "vocabulary"] or self.type != "any"):
            raise ValueError(f"expected one of {', '.join(kinds)}, found {' and '.join(given)}: keep one")
        if self.time == "days" and self.part is None:
            raise ValueError(
                "expected `as` beside `time: days`, such as `as: age` or `as: month`: it reads dates. A duration in days is a "
                "plain number: leave `time` out"
            )
        if self.unknown is not None and self.vocabulary is None:
            raise ValueError("`unknown` is the index of values that the `vocabulary` lacks, and stands beside it")
        if self.pair is not None and self.tokenizer is None:
            raise ValueError("`pair` is the field with the second text of a `tokenizer`, and stands beside it")
        return self


class FieldMapping(FieldOptions):
    """An entry of `fields`."""

    field: str


class InputMapping(FieldOptions):
    """An entry of `inputs`. The options of a field belong to the one of `field`."""

    tensor: str
    field: str | None = None
    fields: list[Annotated[FieldMapping, BeforeValidator(_field)]] | None = Field(default=None, min_length=1)
    dtype: str
    shape: list[int] = Field(default_factory=list)
    max_length: int | None = Field(default=None, ge=1)
    pad: Annotated[float | str | None, BeforeValidator(_pad)] = None
    truncate: bool = False
    mask: bool = False
    token_types: bool = False

    @model_validator(mode="after")
    def _whole(self) -> "InputMapping":
        for problem, is_there in self._problems():
            if is_there:
                raise ValueError(problem)
        return self

    def _problems(self) -> list[tuple[str, bool]]:
        """Each possible problem, and whether it is there."""
        of_field = FieldOptions.model_fields.keys() & self.model_fields_set
        is_text = self.dtype == "string"
        return [
            (
                "write either `field` (one array field) or `fields` (scalar fields, one column each), or `mask: true`, or "
                "`token_types: true`",
                (self.field is None) + (self.fields is None) + (not self.mask) + (not self.token_types) != 3,
            ),
            (
                "`max_length` is for a `field` whose length varies, and stands in place of its `shape`",
                self.max_length is not None and (self.field is None or bool(self.shape)),
            ),
            (
                "`mask` and `token_types` have the shape of the inputs that vary in length: leave `shape` out",
                (self.mask or self.token_types) and bool(self.shape),
            ),
            (f"dtype `{self.dtype}` is not one of {', '.join(DTYPES)}", self.dtype not in DTYPES),
            (
                f"`pad` is a value of the dtype, a finite number here, found {shown(self.pad)}. With "
                "`max_length`, a mask (`mask: true`) tells the model which items are padding",
                isinstance(self.pad, str) and not is_text,
            ),
            (
                "`pad` is a value of the dtype, and stands beside a `field` with `max_length` or `shape`",
                self.pad is not None and (self.field is None or isinstance(self.pad, str) != is_text),
            ),
            (
                f"`pad` is a value of the dtype, for float16 at most {LARGEST_FLOAT16:.0f}, found {shown(self.pad)}",
                self.dtype == "float16" and isinstance(self.pad, float) and abs(self.pad) > LARGEST_FLOAT16,
            ),
            ("`truncate` stands beside a `field` with `max_length` or `shape`", self.truncate and self.field is None),
            (
                f"shape {self.shape} is the shape of one event: every size is at least 1",
                any(size < 1 for size in self.shape),
            ),
            (
                f"{_listed(of_field)}: options of one field stand beside `field`, or in an entry of `fields`, such as "
                f"{{field: age, missing: 0}}",
                bool(of_field) and self.field is None,
            ),
        ]


class OutputMapping(_Options):
    """An entry of `outputs`."""

    tensor: str
    name: str | None = None
    classes: _Entries = None
    top: int | None = Field(default=None, ge=1)
    threshold: float | None = Field(default=None, allow_inf_nan=False)

    @model_validator(mode="after")
    def _one_form(self) -> "OutputMapping":
        if self.top is not None and self.threshold is not None:
            raise ValueError("expected one of top and threshold, found both: write two outputs with different names")
        return self


class RuntimeOptions(_Options):
    """How the executor runs the model. Each option is for some executors only, see `repository`."""

    cuda_graphs: bool = False
    dtype: Literal["float16", "bfloat16"] | None = None
    compile: bool = False
    aoti_package: Annotated[str, Field(min_length=1)] | None = None
    tensorrt_fp16: bool = False


class Config(_Options):
    """The file."""

    description: str = ""
    executor: Annotated[str, Field(min_length=1)] | None = None
    inputs: list[InputMapping] = Field(min_length=1)
    outputs: list[OutputMapping] = Field(min_length=1)
    batch_sizes: list[Annotated[int, Field(ge=1, le=MAX_EVENTS)]] = Field(default_factory=list)
    length_buckets: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)
    # A heading alone is an empty section, as in the pipeline file.
    runtime: Annotated[RuntimeOptions, BeforeValidator(lambda value: {} if value is None else value)] = RuntimeOptions()
    server: Any = None  # its options are those of the executor, see `server_section`
    request: Any = None  # only for `executor: openai`, see `request_section`


SECTIONS: dict[str, type[BaseModel]] = {
    "": Config,
    "inputs": InputMapping,
    "inputs.fields": FieldMapping,
    "outputs": OutputMapping,
    "runtime": RuntimeOptions,
}
"""Place of a mapping in the file -> its options."""


def _listed(names: "set[str]") -> str:
    written = {"part": "as", "lookup": "from"}
    return ", ".join(sorted(f"`{written.get(name, name)}`" for name in names))
