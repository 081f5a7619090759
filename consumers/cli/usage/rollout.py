"""The arguments of `millstream rollout`."""

import argparse
from collections.abc import Sequence
from typing import Any

from millstream.consumers.cli.arguments import add_json, add_pipeline, duration
from millstream.consumers.cli.usage.models import version

STRATEGIES = ("canary", "blue-green", "ab", "bandit", "manual")
# A share such as -5% looks like an option. So that the message says what is expected, a share may be missing until it is read.
BEHIND: dict[str, Any] = {"nargs": "?", "const": ""}
_COMMANDS = {
    "step": "go on to the next step without waiting for its checks",
    "promote": "give the candidate all events at once, without checks",
    "rollback": "give the baseline all events at once",
    "pause": "hold the rollout until `resume`; its shares stay",
    "resume": "go on; the step begins anew",
    "approve": "agree to the step that waits for it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    status = actions.add_parser("status", help="show the state")
    add_pipeline(status)
    add_json(status, "rollout")
    history = actions.add_parser("history", help="list the changes that the control topic still has")
    add_pipeline(history)
    add_json(history, "change")
    _add_start(actions.add_parser("start", help="start a rollout of a version"))
    for name, summary in _COMMANDS.items():
        command = actions.add_parser(name, help=summary)
        add_pipeline(command)
        if name == "promote":
            command.add_argument("--variant", default="", metavar="NAME", help="the arm to promote (bandit)")
        _add_change(command)
    _add_set(actions.add_parser("set", help="set shares, or give keys and values a fixed variant"))
    _add_wait(actions.add_parser("wait", help="wait until the rollout has ended, and tell how by the exit code"))


def _add_start(parser: argparse.ArgumentParser) -> None:
    add_pipeline(parser)
    parser.add_argument(
        "versions",
        metavar="VERSION",
        nargs="*",
        type=version,
        help="the candidate: a number, latest or an alias; several for a bandit (default: `rollout.candidate` or `rollout.arms`)",
    )
    parser.add_argument("--strategy", choices=STRATEGIES, help="in place of `rollout.strategy`")
    parser.add_argument(
        "--share",
        type=share,
        metavar="PERCENT",
        help="the candidate's share (ab, manual; default for manual: 0%%)",
        **BEHIND,
    )
    _add_change(parser, needed=False)


def _add_set(parser: argparse.ArgumentParser) -> None:
    add_pipeline(parser)
    parser.add_argument(
        "--share",
        dest="shares",
        action="append",
        default=[],
        type=named_share,
        metavar="[VARIANT=]PERCENT",
        help="the candidate's share; with several candidates, that of each, such as v2=10%%. The baseline gets the rest",
        **BEHIND,
    )
    for option, read, meaning in (
        ("--key", key_override, "events with this routing key get this variant"),
        ("--key-hex", hex_override, "the same for a key that is no text, in hexadecimal"),
    ):
        parser.add_argument(
            option,
            dest="keys",
            action="append",
            default=[],
            type=read,
            metavar="KEY=VARIANT",
            help=f"{meaning}; without a variant (KEY=), they don't any more",
        )
    parser.add_argument(
        "--field",
        dest="fields",
        action="append",
        default=[],
        type=field_override,
        metavar="FIELD=VALUE:VARIANT",
        help="events with this value in a field of `rollout.override_fields` get this variant; without a variant "
        "(FIELD=VALUE:), they don't any more",
    )
    _add_change(parser)


def _add_wait(parser: argparse.ArgumentParser) -> None:
    add_pipeline(parser)
    parser.add_argument(
        "version",
        metavar="VERSION",
        nargs="?",
        type=version,
        help="the candidate, if its rollout may not have started yet (default: of the newest rollout)",
    )
    parser.add_argument("--timeout", type=duration, metavar="TIME", help="give up after this time, such as 2h")
    add_json(parser, "change")


def _add_change(parser: argparse.ArgumentParser, *, needed: bool = True) -> None:
    parser.add_argument("--reason", required=needed, default="", metavar="TEXT", help="why; kept in the history")
    parser.add_argument("--by", metavar="NAME", help="who; kept in the history (default: your user name)")
    parser.add_argument(
        "--revision",
        type=int,
        metavar="NUMBER",
        help="change only this revision, which `status` has shown (0: none); refuse if somebody has changed it since",
    )
    add_json(parser, "change")


def share(text: str) -> int:
    """A share in percent, in slots."""
    from millstream.pipeline.shares import parse_share  # noqa: PLC0415  (slow)

    if not text:  # of `BEHIND`
        raise argparse.ArgumentTypeError("expected a share from 0% to 100% behind it, such as 5%")
    try:
        return parse_share(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def named_share(text: str) -> tuple[str, int]:
    """`10%` or `v2=10%`: variant and share."""
    name, _, percent = text.rpartition("=")
    return name, share(percent)


def key_override(text: str) -> tuple[bytes, str]:
    """`KEY=VARIANT`. A key may contain `=`."""
    key, variant = _halves(text, "=", "KEY=VARIANT")
    return key.encode(), variant


def hex_override(text: str) -> tuple[bytes, str]:
    """As `key_override`, with the key in hexadecimal."""
    key, variant = _halves(text, "=", "HEX=VARIANT")
    try:
        return bytes.fromhex(key), variant
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a key in hexadecimal, such as 00ff=canary, found {text!r}"
        ) from None


def field_override(text: str) -> tuple[str, str, str]:
    """`FIELD=VALUE:VARIANT`. A value may contain `=` and `:`."""
    field, _, rest = text.partition("=")
    value, variant = _halves(rest, ":", "FIELD=VALUE:VARIANT")
    if not field:
        raise argparse.ArgumentTypeError(f"expected FIELD=VALUE:VARIANT, found {text!r}")
    return field, value, variant


def _halves(text: str, mark: str, expected: str) -> Sequence[str]:
    first, found, last = text.rpartition(mark)
    if not found or not first:
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")
    return first, last
