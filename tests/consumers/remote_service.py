"""A pipeline over JSON events of one number, whose model is on a real server: `y` = -`x`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.servers.triton_server import Triton, write_model
from tests.consumers.python_service import CONFIG, INPUT
from tests.consumers.service import Service, write_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

POISON = 13
NEGATING = """
max_batch_size: 64
input [{ name: "x" data_type: TYPE_FP64 dims: [1] }]
output [{ name: "y" data_type: TYPE_FP64 dims: [1] }]
dynamic_batching { max_queue_delay_microseconds: 200 }
instance_group [{ kind: KIND_CPU count: 1 }]
"""
BODY = f"""
x = tensor(request, "x")
while (FOLDER / "hangs").exists():
    time.sleep(0.02)
time.sleep(float((FOLDER / "slow").read_text()) if (FOLDER / "slow").exists() else 0)
with (FOLDER / "times").open("a") as file:
    file.write(f"{{time.time()}} ")
if (x == {POISON}).any():
    return refused("poison row")
return answer(y=-x)
"""


def negating_triton(models: Path, *options: str, name: str = "number") -> Triton:
    """A Triton with the model, not started. Files in the version's folder make it hang or slow (seconds).

    It appends the time of each request to the file `times`, in seconds since the epoch.
    """
    write_model(models, name, NEGATING, BODY)
    return Triton(models, *options)


def remote_service(folder: Path, kafka: Broker, server: str, *, config: str = CONFIG, **sections: Any) -> Service:
    """The pipeline; `server` is that section of config.yaml, a YAML mapping in one line."""
    (folder / "schemas").mkdir(exist_ok=True)
    version = folder / "models" / "number" / "1"
    version.mkdir(parents=True)
    (version / "config.yaml").write_text(f"executor: kserve\nserver: {server}\n{config}", encoding="utf-8")
    defaults: dict[str, Any] = {
        "input": {key: value for key, value in INPUT.items() if key != "schema"},
        "model": {"name": "number"},
        "output": {"format": "json"},
    }
    return write_service(folder, kafka, **defaults | sections)
