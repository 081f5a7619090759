"""A model per tenant: finds the models in the repository and loads them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as with_default
from functools import partial

from millstream.inference.combined.blanks import blank_part
from millstream.inference.combined.combination import inputs_of
from millstream.inference.combined.member import Member
from millstream.inference.combined.member_inputs import CombinedInputs, combined_inputs
from millstream.inference.combined.model_numbers import ModelNumbers
from millstream.inference.combined.output_types import OutputTypes
from millstream.inference.combined.tenant_executor import TenantExecutor
from millstream.inference.combined.tenant_folders import TENANT
from millstream.inference.combined.tenant_models import TenantModels
from millstream.inference.combined.version import CombinedExecutor, OpenModel
from millstream.inference.errors import ExecutorUnavailable, ModelConfigError, SourceUnavailable
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput, TensorOutput
from millstream.inference.sources.interface import LATEST
from millstream.inference.sources.wanted import version_of

MODEL_OVERHEAD = 2**20  # bytes of a loaded model besides its weights. Measured: 0.1 to 1.3 MiB for small ONNX models
WEIGHT_COPIES = 2  # how many times a loaded model takes the bytes of its files
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class Tenants:
    """A model per tenant."""

    field: str  # of the event, that names the tenant
    key: TensorInput  # with its values as texts
    name: str  # of the models, with `TENANT` for the field's value
    versions: Callable[[str], Sequence[int]]  # the numbers of a model's versions. Raises OSError, SourceUnavailable
    pattern: ModelVersion  # all models have its inputs and outputs
    default: ModelVersion | None  # of tenants without a model
    memory: int  # bytes of all loaded models
    load: Callable[
        [str, int], ModelVersion
    ]  # reads a model's version. Raises OSError, SourceUnavailable, ModelConfigError
    wanted: int | str = LATEST  # version of each tenant's model: a number, `latest` or an alias
    aliases: Callable[[str], Mapping[str, int]] = lambda _: {}  # of a model. Raises ModelConfigError, SourceUnavailable
    place: str = ""  # of `wanted` in the pipeline file, for messages
    numbers: ModelNumbers = with_default(default_factory=ModelNumbers, compare=False)

    @property
    def models(self) -> list[ModelVersion]:
        """See Combination."""
        return [self.pattern]

    @property
    def inputs(self) -> CombinedInputs:
        """See Combination."""
        return combined_inputs([(self.pattern.name, inputs_of(self.pattern))], [True], [self.key])

    @property
    def outputs(self) -> tuple[TensorOutput, ...]:
        """See Combination."""
        return self.pattern.signature.outputs

    def open(self, open_model: OpenModel) -> CombinedExecutor:
        """See Combination."""
        types = OutputTypes()
        pattern = Member(self.pattern, open_model(self.pattern), self.inputs.names[0], types=types)
        models = TenantModels(partial(self._loaded, open_model, types), self.memory, wanted=self._wanted)
        default = None if self.default is None else pattern
        return TenantExecutor(self.field, self.key.tensor, models, pattern, default, self.is_name, self.numbers)

    def is_name(self, tenant: str) -> bool:
        """Whether a text can be a tenant with a model. Others might lead to another folder."""
        name = self.name.replace(TENANT, tenant)
        return bool(tenant) and name not in {".", ".."} and _NAME.fullmatch(name) is not None

    def _wanted(self, tenant: str) -> int | None:
        """The version of a tenant's model; None: it has none. Raises ModelConfigError, ExecutorUnavailable."""
        name = self.name.replace(TENANT, tenant)
        with _reading(name):
            found = self.versions(name)
            if not found:
                return None
            return version_of(
                name,
                self.wanted,
                self.place,
                versions=lambda: dict.fromkeys(found, ""),
                aliases=lambda: self.aliases(name),
            )

    def _loaded(self, open_model: OpenModel, types: OutputTypes, tenant: str) -> tuple[Member, int] | None:
        name = self.name.replace(TENANT, tenant)
        version = self._wanted(tenant)
        if version is None:
            return None
        with _reading(name):
            model = self.load(name, version)
            size = size_of(model)
        if model.signature.inputs != self.pattern.signature.inputs:
            raise ModelConfigError(
                f"{model.place}: expected the inputs of {self.pattern.place}, because the models of all tenants have the same; "
                f"found others. Make the `inputs` of the two config.yaml files equal."
            )
        executor = open_model(model)
        member = Member(model, executor, self.inputs.names[0], types=types)
        try:
            blank_part(member)
        except BaseException:
            executor.close()
            raise
        return member, size


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Explain errors of the repository. Raises ModelConfigError, ExecutorUnavailable."""
    try:
        yield
    except PermissionError as error:
        raise ModelConfigError(f"model {name} can't be read: {error}.") from None
    except OSError as error:
        raise ExecutorUnavailable(f"the model repository can't be read: {error}") from error
    except SourceUnavailable as error:
        raise ExecutorUnavailable(str(error)) from error


def size_of(model: ModelVersion) -> int:
    """The bytes that a loaded model counts as. Raises OSError."""
    files = sum(path.stat().st_size for path in model.file.parent.rglob("*") if path.is_file())
    return WEIGHT_COPIES * files + MODEL_OVERHEAD
