"""Errors of the benchmarks."""


class LeftOutError(Exception):
    """A peer can't be installed or built on this machine. The report lists it with this reason."""


class PeerFailedError(Exception):
    """A peer ended, gave wrong predictions, lost or doubled events, or didn't finish. The figures of this run don't count."""


class NoBrokerError(Exception):
    """No real broker can run here."""
