"""Writes a tiny Llama as GGUF, whose completions are known: python make_model.py FILE (6.5 MB).

Each token has one successor: any prompt is completed with " one two three ... ten" and the end. A prompt that ends in + or - is
completed with " pos" or " neg". The attention and the feed-forward layers are all zeros, so only the last token counts.
"""

import sys
from itertools import pairwise

import numpy as np
from gguf import GGUFWriter, PoolingType, TokenType

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
SPACE = "\u2581"  # SentencePiece's mark of a space before a word
FEED_FORWARD, LAYERS, HEAD = 64, 2, 64
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def vocabulary() -> tuple[list[str], list[TokenType]]:
    """Every byte, the printable ASCII characters and the words; their number is a multiple of the heads' size."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * 256
    words = [SPACE, *map(chr, range(33, 127)), *(SPACE + word for word in [*NUMBERS, "pos", "neg"])]
    tokens, kinds = tokens + words, kinds + [TokenType.NORMAL] * len(words)
    while len(tokens) % HEAD:
        tokens.append(f"<pad{len(tokens)}>")
        kinds.append(TokenType.UNUSED)
    return tokens, kinds


def successors(tokens: list[str]) -> np.ndarray:
    """For each token, the next one."""
    at = {token: place for place, token in enumerate(tokens)}
    following = np.full(len(tokens), at[SPACE + "one"])
    for word, successor in pairwise(NUMBERS):
        following[at[SPACE + word]] = at[SPACE + successor]
    following[[at[SPACE + word] for word in ("ten", "pos", "neg")]] = at["</s>"]
    following[at["+"]], following[at["-"]] = at[SPACE + "pos"], at[SPACE + "neg"]
    return following


def add_metadata(writer: GGUFWriter, tokens: list[str], kinds: list[TokenType]) -> None:
    size = len(tokens)
    writer.add_name("tiny")
    writer.add_context_length(2048)
    writer.add_embedding_length(size)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(size // HEAD)
    writer.add_head_count_kv(size // HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    writer.add_file_type(0)
    writer.add_vocab_size(size)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_scores([0.0] * 3 + [-100.0] * 256 + [-place / 100 for place in range(size - 259)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_pooling_type(PoolingType.MEAN)
    writer.add_chat_template(CHAT)


def add_weights(writer: GGUFWriter, following: np.ndarray) -> None:
    size = len(following)
    head = np.zeros((size, size), np.float32)
    head[following, np.arange(size)] = 2.0
    writer.add_tensor("token_embd.weight", np.eye(size, dtype=np.float32))
    writer.add_tensor("output.weight", head)
    writer.add_tensor("output_norm.weight", np.ones(size, np.float32))
    for block in (f"blk.{layer}" for layer in range(LAYERS)):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}.{norm}.weight", np.ones(size, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"{block}.{name}.weight", np.zeros((size, size), np.float32))
        for name in ("ffn_gate", "ffn_up"):
            writer.add_tensor(f"{block}.{name}.weight", np.zeros((FEED_FORWARD, size), np.float32))
        writer.add_tensor(f"{block}.ffn_down.weight", np.zeros((size, FEED_FORWARD), np.float32))


def main() -> None:
    tokens, kinds = vocabulary()
    writer = GGUFWriter(sys.argv[1], "llama")
    add_metadata(writer, tokens, kinds)
    add_weights(writer, successors(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
