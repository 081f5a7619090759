"""Translates the pipeline's Kafka client settings, which use librdkafka's names, to Faust's settings."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import faust
from aiokafka.helpers import create_ssl_context

from millstream.consumers.comparison.errors import ComparisonError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
_TLS_OF_PROTOCOL = {"PLAINTEXT": False, "SSL": True, "SASL_PLAINTEXT": False, "SASL_SSL": True}


def broker_settings(client: Mapping[str, Any]) -> dict[str, Any]:
    """Faust's settings for the same broker and the same user.

    Raises:
        ComparisonError: Faust doesn't support one of the settings.
    """
    addresses = ";".join(f"kafka://{address.strip()}" for address in str(client["bootstrap.servers"]).split(","))
    protocol = str(client.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in _TLS_OF_PROTOCOL:
        raise ComparisonError(
            f"kafka.client: security.protocol: expected one of {', '.join(_TLS_OF_PROTOCOL)}, found {protocol}."
        )
    context = _context(client) if _TLS_OF_PROTOCOL[protocol] else None
    settings: dict[str, Any] = {"broker": addresses}
    if protocol.startswith("SASL"):
        mechanism = str(client.get("sasl.mechanism", client.get("sasl.mechanisms", "GSSAPI"))).upper()
        if mechanism not in _MECHANISMS:
            raise ComparisonError(
                f"kafka.client: sasl.mechanism: expected one of {', '.join(sorted(_MECHANISMS))}, found {mechanism}. "
                "`millstream compare` needs a Kafka user with one of these."
            )
        settings["broker_credentials"] = faust.SASLCredentials(
            username=str(client.get("sasl.username", "")),
            password=str(client.get("sasl.password", "")),
            ssl_context=context,
            mechanism=mechanism,
        )
    elif context is not None:
        settings["broker_credentials"] = faust.SSLCredentials(context)
    return settings


def _context(client: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        context = create_ssl_context(
            cafile=client.get("ssl.ca.location"),
            certfile=client.get("ssl.certificate.location"),
            keyfile=client.get("ssl.key.location"),
            password=client.get("ssl.key.password"),
        )
    except (OSError, ssl.SSLError) as error:
        raise ComparisonError(
            f"kafka.client: the TLS files can't be read: {error}. Check the paths under `ssl.`."
        ) from None
    assert isinstance(context, ssl.SSLContext)
    if str(client.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if str(client.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
