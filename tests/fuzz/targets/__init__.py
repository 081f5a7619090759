"""What is fuzzed: a module for each kind of input."""

from tests.fuzz.case import Target
from tests.fuzz.targets.avro import Avro
from tests.fuzz.targets.blocks import Blocks
from tests.fuzz.targets.encoders import Encoders
from tests.fuzz.targets.files import Models, Pipelines
from tests.fuzz.targets.json import Json
from tests.fuzz.targets.keys import Keys
from tests.fuzz.targets.records import RecordColumns
from tests.fuzz.targets.schemas import Schemas
from tests.fuzz.targets.texts import Texts
from tests.fuzz.targets.wire import Wire

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Avro(),
        Json(),
        RecordColumns(),
        Wire(),
        Blocks(),
        Schemas(),
        Encoders(),
        Texts(),
        Keys(),
        Pipelines(),
        Models(),
    )
}
"""By name."""
