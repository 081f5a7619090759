"""Arguments that several commands share."""

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

from millstream.consumers.cli.completed import FILES, PIPELINE_FILES

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the pipeline file."""
    action = parser.add_argument("pipeline", metavar="PIPELINE", type=Path, help="the pipeline file, or its folder")
    action.complete = PIPELINE_FILES  # type: ignore[attr-defined]


def add_metrics_port(parser: argparse.ArgumentParser, remark: str = "") -> None:
    """Add the options for the port of metrics and probes, and for its address. `remark`: what the metrics are of."""
    parser.add_argument(
        "--metrics-port",
        type=port_number,
        metavar="PORT",
        help=f"serve /metrics{remark}, /live and /ready; 0: a free port",
    )
    add_metrics_host(parser)


def add_metrics_host(parser: argparse.ArgumentParser) -> None:
    """Add the option for the address that the metrics port listens on."""
    parser.add_argument(
        "--metrics-host",
        metavar="HOST",
        help="address to serve metrics and probes on (default: 127.0.0.1, this machine only; 0.0.0.0: all network interfaces)",
    )


def add_json(parser: argparse.ArgumentParser, each: str, remark: str = "") -> None:
    """Add the option for output that programs read: one object for each of these, each on one line."""
    parser.add_argument(
        "--json", action="store_true", help=f"print one JSON object per {each}, each on one line{remark}"
    )


def add_event_file(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the file and its format."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="the file with the events; - or nothing: standard input"
    )
    _add_format(parser)


def add_events_option(parser: argparse.ArgumentParser, without: str) -> None:
    """Add the options for a file with events, which may be left out. `without`: what happens then."""
    action = parser.add_argument(
        "--events", dest="file", metavar="FILE", help=f"a file with events, JSON lines or CSV (default: {without})"
    )
    action.complete = FILES  # type: ignore[attr-defined]
    _add_format(parser)


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=["jsonl", "csv"],
        help="one JSON object per line, or CSV with a header row (default: by the file's ending, else jsonl)",
    )


def add_log_options(parser: argparse.ArgumentParser, level: str = "info") -> None:
    """Add the options for the log lines to print, and for their format. `level`: the default."""
    parser.add_argument(
        "--log-level",
        default=level,
        choices=LOG_LEVELS,
        help="print log lines of this level and of those that are more severe (default: %(default)s)",
    )
    parser.add_argument(
        "--log-format",
        default="text",
        choices=LOG_FORMATS,
        help="text (default), or json: one JSON object per line, for programs that collect logs",
    )


def metrics_host(args: argparse.Namespace, port: int | None, option: str = "--metrics-port") -> str:
    """The address to listen on. An address without a port is wrong use: nothing would be served."""
    if args.metrics_host is not None and port is None:
        args.parser.error(f"--metrics-host {args.metrics_host}: nothing is served without a port. Add {option} PORT.")
    return args.metrics_host or "127.0.0.1"


def add_former_name(parser: argparse.ArgumentParser, former: str, name: str) -> None:
    """Accept an option under its former name, too, with a warning. This lasts for one version; CHANGELOG.md lists the names.

    Args:
        parser: of the command.
        former: the former name.
        name: the option as it is now; with a value behind it if the former one was a flag, such as `--log-level info`.
    """
    option, _, value = name.partition(" ")
    settings: dict[str, Any] = {"nargs": 0, "const": value} if value else {}
    parser.add_argument(
        former,
        dest=option.removeprefix("--").replace("-", "_"),
        action=_FormerName,
        name=name,
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
        **settings,
    )


class _FormerName(argparse.Action):
    def __init__(self, *args: Any, name: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._name = name

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        _option: str | None = None,
    ) -> None:
        former = self.option_strings[0]
        print(f"{former} is now {self._name}; the former name works in this version only", file=sys.stderr)
        setattr(namespace, self.dest, values if self.const is None else self.const)


def name(text: str) -> str:
    """A name, which an unset variable of a script is not."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a name, found nothing")
    return text


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, "a whole number of at least 1", least=1)


def count(text: str) -> int:
    """A whole number of at least 0."""
    return _whole(text, "a whole number of at least 0")


def port_number(text: str) -> int:
    """A TCP port, or 0 for a free one."""
    return _whole(text, "a port from 0 to 65535", most=65535)


def seconds(text: str) -> float:
    """A duration in seconds above 0."""
    return _number(text, "a number of seconds above 0")


def rate(text: str) -> float:
    """Events per second, above 0."""
    return _number(text, "a number above 0")


def rate_or_0(text: str) -> float:
    """Events per second, or 0 for no limit."""
    return _number(text, "a number of at least 0", or_0=True)


def duration(text: str) -> float:
    """A duration with its unit, such as 20ms, in seconds; above 0."""
    from millstream.schemas.units import parse_duration  # noqa: PLC0415  (slow)

    try:
        found = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found == 0:
        raise argparse.ArgumentTypeError(f"expected a duration above 0, found {text!r}")
    return found


def utc_time(text: str) -> int:
    """A time in ISO 8601 as milliseconds since 1970; without a zone, it is in UTC."""
    from datetime import UTC, datetime  # noqa: PLC0415  (slow)

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            "expected a date, or a date with a time (UTC without a zone), such as 2026-05-01 or 2026-05-01T12:30Z, found "
            f"{text!r}{_with_today(text)}"
        ) from None
    milliseconds = round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    if milliseconds < 0:
        raise argparse.ArgumentTypeError(f"expected a time since 1970, as Kafka's records have, found {text!r}")
    return milliseconds


def utc_time_or_now(text: str) -> int:
    """As `utc_time`, or the word now."""
    return time.time_ns() // 1_000_000 if text == "now" else utc_time(text)


def _with_today(text: str) -> str:
    """If the text is a time without a date: what to write for today."""
    from datetime import UTC, datetime  # noqa: PLC0415  (slow)

    written = f"{datetime.now(UTC):%Y-%m-%d}T{text}"
    try:
        found = datetime.fromisoformat(written)
    except ValueError:
        return ""
    return f", which has no date. For today, write {written}{'' if found.tzinfo else 'Z'}"


def _whole(text: str, expected: str, *, least: int = 0, most: float = math.inf) -> int:
    number = int(text) if text.isdecimal() else -1
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")
    return number


def _number(text: str, expected: str, *, or_0: bool = False) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (0 < number < math.inf or (or_0 and number == 0)):
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")
    return number
