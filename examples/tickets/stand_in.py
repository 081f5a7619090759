"""A stand-in for a language model, to try the example without one: a server with OpenAI's API that looks for words.

usage: python stand_in.py [PORT]      (needs aiohttp, which comes with Millstream's extra `openai`)
"""

import json
import re
import sys
from typing import Any

from aiohttp import web

TEAMS = {
    "billing": r"invoice|charged|paid|refund|VAT",
    "bug": r"crash|error|broken",
    "account": r"password|locked|account|login",
}
URGENT = r"can't work|urgent|nobody can"


def answer_to(ticket: str) -> str:
    """What a model would answer."""
    team = next((name for name, words in TEAMS.items() if re.search(words, ticket, re.IGNORECASE)), "other")
    subject = ticket.partition("\n")[0].removeprefix("Subject: ")
    return json.dumps({"team": team, "urgent": bool(re.search(URGENT, ticket)), "summary": subject})


async def complete(request: web.Request) -> web.StreamResponse:
    """Answer a chat, whole or in a stream."""
    body = await request.json()
    text = answer_to(body["messages"][-1]["content"])
    pieces = re.findall(r"\s*\S+", text)
    prompt = " ".join(message["content"] for message in body["messages"])
    usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(pieces)}
    if not body.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"object": "chat.completion", "choices": [choice], "usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    deltas = [({"content": piece}, None) for piece in pieces]
    for delta, reason in [*deltas, ({}, "stop")]:
        await send(response, {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    await send(response, {"choices": [], "usage": usage})
    await response.write(b"data: [DONE]\n\n")
    return response


async def send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    """Send one event of the stream."""
    await response.write(b"data: " + json.dumps({"object": "chat.completion.chunk", **event}).encode() + b"\n\n")


async def models(_: web.Request) -> web.Response:
    """List the models."""
    return web.json_response({"object": "list", "data": [{"id": "stand-in", "object": "model"}]})


def application() -> web.Application:
    """The server."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", models)
    return app


if __name__ == "__main__":
    web.run_app(application(), host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
