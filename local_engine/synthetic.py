"""Writes synthetic snapshots in the shape of jina-ocr-v1: to try a deployment and test the engine without the weights.

    write_snapshot("tiny")                                      # 50 MB, text known in advance, draft right 4 times in 5
    write_snapshot("big", size="full", draft=None)              # 6.7 GB, every tensor of the real model but the draft's
    write_snapshot("live", kind="live")                         # every layer acts, for parity of changed code paths

A `cycle` snapshot has its layers switched off (their output projections are zero), so each token leads to one next one:
the text is known in advance, whatever the page, while every matrix has its size and costs what the real one costs. Its
FastMTP head is right after a chosen share of the tokens. A `live` snapshot has seeded random weights: the text, which
often repeats, depends on the image and on all earlier tokens, and the draft on the state fed back to it.
"""

import json
import math
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Size = Literal["tiny", "full"]
Kind = Literal["cycle", "live"]
Draft = Literal["embedding", "state"]

SYNTHETIC_ARCHITECTURE = "JinaOCRSyntheticForCausalLM"  # local_engine.synthetic_target: the target with shrunken towers
BOS, EOS, PAD = 0, 1, 2
_FIRST_LETTER = 10  # ids of the 256 letters of the byte-level alphabet start here
_FIRST_WORD = 300
_LIVE_WORDS = 64  # few, so that the text repeats and the repetition penalty has something to do
_LIVE_LAYER_GAIN = 3.0  # of what the layers add to the residual stream: they decide about half of the tokens
_LIVE_FOCUS = 2.0  # of queries and keys: attention that picks a few tokens instead of averaging over all
_BAD_CHANNEL = 12.0  # what channel 0 of the embedding holds for tokens after which the draft is made to be wrong

_SPECIAL = {BOS: "<｜begin▁of▁sentence｜>", EOS: "<｜end▁of▁sentence｜>", PAD: "<｜▁pad▁｜>"}
# The fault of the published chat template, for tests: its line ends are a backslash and an n.
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}<|User|>:\\n"
    "{%- if message['content'] is string -%}{{ message['content'] }}{%- else -%}"
    "{%- for part in message['content'] -%}{{ part['text'] if part['type'] == 'text' else '<image>\\n' }}{%- endfor -%}"
    "{%- endif -%}\\n{%- endfor -%}<|Assistant|>:\\n"
)


@dataclass(frozen=True)
class Dimensions:
    """Sizes of a snapshot; the full ones are those of the real config.json as public ports quote them."""

    vocabulary: int
    image_token: int
    hidden: int
    layers: int
    heads: int
    intermediate: int
    experts: int
    experts_per_token: int
    expert_intermediate: int
    sam_width: int
    sam_layers: int
    sam_heads: int
    sam_global: tuple[int, ...]
    clip_layers: int


FULL = Dimensions(129280, 128815, 1280, 12, 10, 6848, 64, 6, 896, 768, 12, 12, (2, 5, 8, 11), 24)
TINY = Dimensions(1024, 1000, 256, 3, 4, 512, 8, 2, 128, 128, 2, 2, (1,), 1)
DIMENSIONS: dict[Size, Dimensions] = {"tiny": TINY, "full": FULL}
_SHARED_EXPERTS = 2
_CLIP_WIDTH = 1024  # fixed: SAM's 1,024 channels are its patch embeddings, and both together are the projector's 2,048


@dataclass(frozen=True)
class Snapshot:
    """A written snapshot and what its target model says.

    Attributes:
        path: the folder.
        tokens: ids of the text; empty for `live`, whose text depends on the page. In a looping snapshot the last
            `loop` of them come again and again; otherwise the end of the text follows.
        text: the text of `tokens`.
        loop: tokens of the repeated pattern; 0: the text ends.
        wrong_after: the tokens after which the draft is wrong.
    """

    path: Path
    tokens: tuple[int, ...]
    text: str
    loop: int
    wrong_after: frozenset[int]

    def generated(self, count: int) -> list[int]:
        """The first `count` token ids that greedy decoding gives when the end of the text does not stop it."""
        pattern = self.tokens[-self.loop :] if self.loop else (EOS, *self.tokens)
        ids = list(self.tokens)
        while len(ids) < count:
            ids.extend(pattern)
        return ids[:count]

    def accepted(self, k: int, count: int) -> list[int]:
        """How often verification accepts draft 1, 2, ... k while the first `count` tokens are generated.

        The first token comes from the prompt; each later step verifies k drafts and adds one token of the target's own.
        """
        ids = self.generated(count + k)
        accepted, at = [0] * k, 0
        while at < count - 1:
            right = 0
            while right < k and ids[at + right] not in self.wrong_after:
                accepted[right] += 1
                right += 1
            at += right + 1
        return accepted


def write_snapshot(
    path: str | Path,
    *,
    size: Size = "tiny",
    kind: Kind = "cycle",
    draft: Draft | None = "embedding",
    acceptance: float = 0.79,
    duplicates: bool = False,
    length: int = 120,
    loop: int = 0,
    seed: int = 0,
) -> Snapshot:
    """Write a snapshot in bfloat16, two shards with an index, tokenizer and configurations as in the published one.

    Args:
        path: folder to write to; made if it is missing.
        size: `full` has all 2,722 tensors of the real model (6.7 GB, 10 s on a GPU and minutes without); `tiny` has
            fewer layers and narrow towers (50 MB) and runs on the CPU.
        kind: `cycle` or `live`, see above.
        draft: what the FastMTP head of a `cycle` snapshot reads, the token's embedding or only the state fed back to
            it; None leaves its tensors out. The head of a `live` snapshot reads both.
        acceptance: share of the tokens after which the draft of a `cycle` snapshot is right; 0.79 gives about what is
            reported for the real head, 0.79 / 0.62 / 0.51 at positions 1 / 2 / 3.
        duplicates: also write the copies of embedding, norm and head that some snapshots carry for the draft.
        length: tokens of the known text. At most `hidden` - 2 for `draft="state"`.
        loop: let the last `loop` tokens repeat for ever instead of ending the text.
        seed: of all random weights.

    Returns:
        The snapshot, with the text it will give.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    dims = DIMENSIONS[size]
    words = list(range(_FIRST_WORD, _FIRST_WORD + (length if kind == "cycle" else _LIVE_WORDS)))
    tokenizer = _tokenizer(dims, len(words))
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_configs(folder, dims, size)
    wrong: frozenset[int] = frozenset()
    if kind == "cycle":
        wrong = frozenset(random.Random(seed).sample(words, round((1 - acceptance) * len(words))))
        special = _cycle_tensors(dims, words, loop, wrong, draft or "embedding", seed)
    else:
        special = _live_tensors(dims, words, seed)
    _write_tensors(folder, dims, special, kind, draft is not None, duplicates, seed)
    tokens = tuple(words) if kind == "cycle" else ()
    return Snapshot(folder, tokens, tokenizer.decode(list(tokens)), loop, wrong)


def tensor_shapes(dims: Dimensions) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a snapshot with draft head: 2,722 at full size."""
    return dict(_shapes(dims))


def _shapes(dims: Dimensions) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, hidden = dims.sam_width, dims.hidden

    def both(name: str, *shape: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]

    sam = "model.sam_model"
    yield f"{sam}.pos_embed", (1, 64, 64, width)
    yield from both(f"{sam}.patch_embed.proj", width, 3, 16, 16)
    for i in range(dims.sam_layers):
        block, window = f"{sam}.blocks.{i}", 64 if i in dims.sam_global else 14
        yield from both(f"{block}.norm1", width)
        yield from both(f"{block}.attn.qkv", 3 * width, width)
        yield from both(f"{block}.attn.proj", width, width)
        for axis in "hw":
            yield f"{block}.attn.rel_pos_{axis}", (2 * window - 1, width // dims.sam_heads)
        yield from both(f"{block}.norm2", width)
        yield from both(f"{block}.mlp.lin1", 4 * width, width)
        yield from both(f"{block}.mlp.lin2", width, 4 * width)
    yield f"{sam}.neck.0.weight", (256, width, 1, 1)
    yield from both(f"{sam}.neck.1", 256)
    yield f"{sam}.neck.2.weight", (256, 256, 3, 3)
    yield from both(f"{sam}.neck.3", 256)
    yield f"{sam}.net_2.weight", (512, 256, 3, 3)
    yield f"{sam}.net_3.weight", (1024, 512, 3, 3)

    clip, width = "model.vision_model", _CLIP_WIDTH
    yield f"{clip}.embeddings.class_embedding", (width,)
    yield f"{clip}.embeddings.patch_embedding.weight", (width, 3, 14, 14)
    yield f"{clip}.embeddings.position_embedding.weight", (257, width)
    yield from both(f"{clip}.pre_layrnorm", width)
    for i in range(dims.clip_layers):
        block = f"{clip}.transformer.layers.{i}"
        yield from both(f"{block}.layer_norm1", width)
        yield from both(f"{block}.self_attn.qkv_proj", 3 * width, width)
        yield from both(f"{block}.self_attn.out_proj", width, width)
        yield from both(f"{block}.layer_norm2", width)
        yield from both(f"{block}.mlp.fc1", 4 * width, width)
        yield from both(f"{block}.mlp.fc2", width, 4 * width)
    yield from both("model.projector.layers", hidden, 2 * width)
    yield "model.image_newline", (hidden,)
    yield "model.view_seperator", (hidden,)

    def gated(name: str, inner: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}.gate_proj.weight", (inner, hidden)
        yield f"{name}.up_proj.weight", (inner, hidden)
        yield f"{name}.down_proj.weight", (hidden, inner)

    def attention(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}.input_layernorm.weight", (hidden,)
        yield f"{name}.post_attention_layernorm.weight", (hidden,)
        for projection in "qkvo":
            yield f"{name}.self_attn.{projection}_proj.weight", (hidden, hidden)

    yield "model.embed_tokens.weight", (dims.vocabulary, hidden)
    for i in range(dims.layers):
        block = f"model.layers.{i}"
        yield from attention(block)
        if i == 0:
            yield from gated(f"{block}.mlp", dims.intermediate)
            continue
        yield f"{block}.mlp.gate.weight", (dims.experts, hidden)
        for expert in range(dims.experts):
            yield from gated(f"{block}.mlp.experts.{expert}", dims.expert_intermediate)
        yield from gated(f"{block}.mlp.shared_experts", dims.expert_intermediate * _SHARED_EXPERTS)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (dims.vocabulary, hidden)

    head = "mtp_module.heads.0"
    yield f"{head}.enorm.weight", (hidden,)
    yield f"{head}.hnorm.weight", (hidden,)
    yield f"{head}.eh_proj.weight", (hidden, 2 * hidden)
    yield from attention(f"{head}.mtp_block")
    yield from gated(f"{head}.mtp_block.mlp", dims.intermediate)


_DUPLICATES = {  # the draft's copy: the target's tensor it equals
    "mtp_embed_tokens.weight": "model.embed_tokens.weight",
    "mtp_module.heads.0.shared_head.norm.weight": "model.norm.weight",
    "mtp_module.heads.0.shared_head.local_head.weight": "lm_head.weight",
}


def _write_tensors(
    folder: Path, dims: Dimensions, special: dict[str, Any], kind: Kind, draft: bool, duplicates: bool, seed: int
) -> None:
    import torch
    from safetensors.torch import save_file

    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes = tensor_shapes(dims)
    names = [name for name in shapes if draft or not name.startswith("mtp_")]
    names += [name for name in _DUPLICATES if duplicates]
    half = f"model.layers.{dims.layers // 2}."
    cut = next(i for i, name in enumerate(names) if name.startswith(half))
    index: dict[str, str] = {}
    total = 0
    for number, shard in enumerate((names[:cut], names[cut:]), 1):
        tensors = {}
        for name in shard:
            source = _DUPLICATES.get(name, name)
            value = special.get(source)
            if value is None:
                value = _random_tensor(source, shapes[source], kind, seed, device)
            tensors[name] = value.to("cpu", torch.bfloat16, copy=True).contiguous()
            total += tensors[name].nbytes
        file = f"model-{number:05}-of-00002.safetensors"
        save_file(tensors, folder / file, metadata={"format": "pt"})
        index.update(dict.fromkeys(shard, file))
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": index})


def _random_tensor(name: str, shape: tuple[int, ...], kind: Kind, seed: int, device: str) -> Any:
    """A seeded random tensor that keeps activations near 1, whatever else the snapshot holds."""
    import torch

    if name.endswith(".bias"):
        return torch.zeros(shape)
    if "norm" in name or name.endswith(("neck.1.weight", "neck.3.weight")):
        return torch.ones(shape)
    output = name.endswith(("o_proj.weight", "down_proj.weight"))
    if output and kind == "cycle":
        return torch.zeros(shape)
    fan_in = math.prod(shape[1:]) if len(shape) in (2, 4) and name.endswith("weight") else 1
    gain = _LIVE_LAYER_GAIN if output else _LIVE_FOCUS if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.0
    generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()) + seed)
    return torch.randn(shape, generator=generator, device=device) * (gain / math.sqrt(fan_in))


def _unit_rows(rows: int, hidden: int, seed: int) -> Any:
    """Random vectors of the length that RMSNorm leaves unchanged."""
    import torch

    vectors = torch.randn(rows, hidden, generator=torch.Generator().manual_seed(seed))
    return vectors / vectors.norm(dim=1, keepdim=True) * math.sqrt(hidden)


def _cycle_tensors(
    dims: Dimensions, words: list[int], loop: int, wrong: frozenset[int], draft: Draft, seed: int
) -> dict[str, Any]:
    """Embedding, head and draft of a text in which each token has one follower.

    The head's row of a token is the sum of the embeddings it follows. Tokens outside of the text share one embedding,
    so any prompt leads to the first word.
    """
    import torch

    hidden = dims.hidden
    vectors = _unit_rows(len(words) + 2, hidden, seed)
    vectors[:, 0] = 0
    outside, trap, text = vectors[0], vectors[1], vectors[2:]
    for i, word in enumerate(words):
        if word in wrong:
            text[i, 0] = _BAD_CHANNEL
    embedding = outside.repeat(dims.vocabulary, 1)
    embedding[words] = text
    head = torch.zeros(dims.vocabulary, hidden)
    after = [*words[1:], words[-loop] if loop else EOS]
    for source, follower in [(EOS, words[0]), *zip(words, after, strict=True)]:
        head[follower] += embedding[source]
    trap_token = words[0] - 1
    head[trap_token] = trap

    projection = torch.zeros(hidden, 2 * hidden)
    if draft == "embedding":
        projection[:, :hidden] = torch.eye(hidden)
    else:  # M with M @ embedding[t] = embedding[follower of t]
        before = torch.cat([outside[None], text])
        behind = embedding[[words[0], *after]]
        projection[:, hidden:] = _linear_map(before, behind)
    # One neuron answers to channel 0 and moves the state to the trap, whose token is never right.
    gate = torch.zeros(dims.intermediate, hidden)
    gate[0, 0] = 1
    down = torch.zeros(hidden, dims.intermediate)
    down[:, 0] = 3 * trap / trap.norm()
    block = "mtp_module.heads.0.mtp_block.mlp"
    return {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head * 0.05,
        "mtp_module.heads.0.eh_proj.weight": projection,
        f"{block}.gate_proj.weight": gate,
        f"{block}.up_proj.weight": gate,
        f"{block}.down_proj.weight": down,
    }


def _live_tensors(dims: Dimensions, words: list[int], seed: int) -> dict[str, Any]:
    """Embedding, head and draft of a text over few words, with followers as in a cycle until the layers decide."""
    import torch

    hidden = dims.hidden
    embedding = _unit_rows(dims.vocabulary, hidden, seed)
    order = random.Random(seed).sample(words, len(words))
    after = [*order[1:], order[0]]
    head = torch.zeros(dims.vocabulary, hidden)
    head[after] = embedding[order]
    projection = torch.cat([torch.eye(hidden), _linear_map(embedding[order], embedding[after])], dim=1) / 2
    return {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head * 0.05,
        "mtp_module.heads.0.eh_proj.weight": projection,
    }


def _linear_map(rows: Any, images: Any) -> Any:
    """The smallest matrix that sends each row to its image. (lstsq gives zeros where a column of the rows is empty.)"""
    import torch

    return (torch.linalg.pinv(rows.double()) @ images.double()).T.float()


def _tokenizer(dims: Dimensions, words: int) -> Any:
    """A byte-level tokenizer: letters, `words` whole words that only the model writes, and the special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = {i: f"unused{i}" for i in range(dims.vocabulary)}
    names |= _SPECIAL | {_FIRST_LETTER + i: letter for i, letter in enumerate(letters)}
    encode: Callable[[str], str] = lambda text: text.replace(" ", "Ġ").replace("\n", "Ċ")  # noqa: E731
    names |= {_FIRST_WORD + i: encode(_word(i)) for i in range(words)}
    image = dims.image_token
    markup = {image + 6: "<td>", image + 7: "</td>", image + 10: "<|User|>", image + 11: "<|Assistant|>"}
    names |= {image: "<image>"} | markup
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in names.items()}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*_SPECIAL.values(), "<image>"])
    tokenizer.add_tokens(list(markup.values()))
    return tokenizer


def _word(number: int) -> str:
    """The number-th word of the text, each of them another one, with the space or line end around it."""
    if number == 0:
        return "# Synthetic page\n\n"
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    mixed = number * 7919 % 70**3  # a prime, so that neighbours differ and no word comes twice
    word = "".join(syllables[mixed // 70**i % 70] for i in (2, 1, 0))
    first = number % 12 == 1
    end = ".\n\n" if number % 36 == 0 else "." if number % 12 == 0 else ""
    space = "" if number % 36 == 1 else " "
    return space + (word.capitalize() if first else word) + end


def _write_configs(folder: Path, dims: Dimensions, size: Size) -> None:
    token = {"bos_token_id": BOS, "eos_token_id": EOS}
    language = {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        **token,
        "first_k_dense_replace": 1,
        "hidden_size": dims.hidden,
        "intermediate_size": dims.intermediate,
        "kv_lora_rank": None,  # said openly: left out, vLLM takes the model for one with latent attention
        "q_lora_rank": None,
        "lm_head": True,
        "max_position_embeddings": 32768,
        "moe_intermediate_size": dims.expert_intermediate,
        "n_group": 1,
        "topk_group": 1,
        "n_routed_experts": dims.experts,
        "n_shared_experts": _SHARED_EXPERTS,
        "num_attention_heads": dims.heads,
        "num_key_value_heads": dims.heads,
        "num_experts_per_tok": dims.experts_per_token,
        "num_hidden_layers": dims.layers,
        "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0,
        "v_head_dim": 0,
        "rm_head": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "topk_method": "greedy",
        "torch_dtype": "bfloat16",
        "use_mla": False,
        "vocab_size": dims.vocabulary,
    }
    sam = {
        "downsample_channels": [512, 1024],
        "global_attn_indexes": list(dims.sam_global),
        "heads": dims.sam_heads,
        "layers": dims.sam_layers,
        "width": dims.sam_width,
    }
    clip = {"heads": 16, "image_size": 224, "layers": dims.clip_layers, "patch_size": 14, "width": _CLIP_WIDTH}
    config = {
        "architectures": ["DeepseekOCRForCausalLM"],
        "model_type": "deepseek_vl_v2",
        **({} if size == "full" else {"local_engine_architecture": SYNTHETIC_ARCHITECTURE}),
        "candidate_resolutions": [[1024, 1024]],
        "global_view_pos": "head",
        "tile_tag": "2D",
        "torch_dtype": "bfloat16",
        **token,
        "pad_token_id": PAD,
        "image_token_index": dims.image_token,
        "language_config": language,
        "projector_config": {
            "input_dim": 2 * _CLIP_WIDTH,
            "model_type": "mlp_projector",
            "n_embed": dims.hidden,
            "projector_type": "linear",
        },
        "vision_config": {
            "image_size": 1024,
            "mlp_ratio": 3.7362,
            "model_name": "deeplip_b_l",
            "model_type": "vision",
            "width": {"clip-l-14-224": clip, "sam_vit_b": sam},
        },
        "num_nextn_predict_layers": 1,
        "mtp_num_heads": 1,
        "mtp_num_speculative_steps": 3,
        "mtp_recursive": True,
        "mtp_moe": False,
        "mtp_share_embedding_weights": True,
        "mtp_share_lm_head": True,
        "mtp_share_norm": True,
    }
    special = {"bos_token": _SPECIAL[BOS], "eos_token": _SPECIAL[EOS], "pad_token": _SPECIAL[PAD]}
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", token | {"pad_token_id": PAD})
    _write_json(folder / "special_tokens_map.json", special)
    _write_json(
        folder / "tokenizer_config.json",
        special | {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": False, "model_max_length": 32768},
    )
    _write_json(
        folder / "processor_config.json",
        {
            "processor_class": "DeepseekOCRProcessor",
            "base_size": 1024,
            "image_size": 640,
            "crop_mode": True,
            "patch_size": 16,
            "downsample_ratio": 4,
            "image_token": "<image>",
            "pad_token": _SPECIAL[PAD],
        },
    )
    (folder / "chat_template.jinja").write_text(_CHAT_TEMPLATE, encoding="utf-8")


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
