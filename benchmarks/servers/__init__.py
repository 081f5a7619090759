"""Real model servers on this machine, for tests and benchmarks. Each has an environment of its own under .cache/servers."""

from benchmarks.environments import ROOT

CACHE = ROOT / ".cache" / "servers"
