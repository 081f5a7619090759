"""Reads the response to a request for embeddings."""

import msgspec
import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ExecutorUnavailable
from millstream.inference.executors.openai.usage import Usage, token_count

Embeddings = npt.NDArray[np.float32]
"""[texts, dimensions]"""


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Body(msgspec.Struct):
    data: list[_Embedding]
    usage: Usage | None = None


_DECODER = msgspec.json.Decoder(_Body)


def embeddings_of(body: bytes, texts: int, where: str) -> tuple[Embeddings, int | None]:
    """The embeddings, [texts, dimensions], in the order of the texts; and the number of tokens that the server reports.

    Args:
        body: the response.
        texts: the number of texts in the request.
        where: how messages name the server.

    Raises:
        ExecutorUnavailable: the response has not one embedding of equal length for each text.
    """
    try:
        found = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ExecutorUnavailable(
            f"{where} answers something other than embeddings ({error}). Check in config.yaml whether `server.urls` and "
            f"`server.model` name a model for embeddings"
        ) from None
    if len(found.data) != texts:
        raise ExecutorUnavailable(f"{where}: expected {texts} embeddings for {texts} texts, found {len(found.data)}")
    places = [at if one.index is None else one.index for at, one in enumerate(found.data)]
    lengths = {len(one.embedding) for one in found.data}
    if sorted(places) != list(range(texts)) or len(lengths) != 1 or 0 in lengths:
        raise ExecutorUnavailable(
            f"{where}: expected embeddings of one length, numbered from 0 to {texts - 1}, found the lengths "
            f"{sorted(lengths)[:5]} and the numbers {places[:5]}"
        )
    array = np.empty((texts, lengths.pop()), np.float32)
    for place, one in zip(places, found.data, strict=True):
        array[place] = one.embedding
    return array, None if found.usage is None else token_count(found.usage.prompt_tokens)
