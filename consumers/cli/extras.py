"""Says which extra of Millstream a command needs."""

import sys


def needs_comparison(command: str, error: ModuleNotFoundError) -> str:
    """The message about a package of the extra `comparison` that is not installed. `command`: such as `millstream compare`."""
    return (
        f"`{command}` needs the package {error.name}, which is not installed. Install Millstream's extra `comparison`: "
        f"{sys.executable} -m pip install 'millstream[comparison]'"
    )
