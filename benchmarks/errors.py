"""What can go wrong in the bench."""


class LeftOutError(Exception):
    """A peer can't be installed or built here: the report names it with this reason."""


class PeerFailedError(Exception):
    """A peer ended, answered wrongly, lost or doubled events, or did not finish: no figure of this run counts."""


class NoBrokerError(Exception):
    """No real broker can run here."""
