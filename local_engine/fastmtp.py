"""FastMTP, the draft head of jina-ocr-v1, as a draft model for vLLM's `method="eagle"`.

    x = eh_proj([enorm(embedding) ; hnorm(h)])     embedding first; it is 0 at position 0
    h = norm(block(x))                             gives the draft token, and is fed back for the next one

One block is used for all K draft tokens. vLLM pairs token j with the target's final hidden state of j - 1, hands over
the image's embeddings one position ahead, and then feeds `h` back K - 1 times: `method="eagle"` does so by contract.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from vllm.compilation.decorators import support_torch_compile
from vllm.config import VllmConfig
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import ReplicatedLinear
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.models.deepseek_ocr import DeepseekOCRDummyInputsBuilder
from vllm.model_executor.models.llama import LlamaDecoderLayer
from vllm.model_executor.models.utils import (
    AutoWeightsLoader,
    WeightsMapper,
    _merge_multimodal_embeddings,
    maybe_prefix,
)
from vllm.multimodal import MULTIMODAL_REGISTRY

from local_engine.processor import JinaOCRMultiModalProcessor, JinaOCRProcessingInfo
from local_engine.snapshot import HEAD_BLOCK, HEAD_PARTS, TARGET_NORM


class SharedLater(nn.Module):
    """Stands where vLLM puts the target's embedding, without its 330 MB.

    vLLM 0.26 asks what it replaces for its width, and before that tries it out: if it fails, the draft gets no image.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(0, width), persistent=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.weight.new_zeros(*input_ids.shape, self.weight.shape[-1])


@support_torch_compile
class FastMTPHead(nn.Module):
    """The head itself: one pre-norm decoder block between a projection and the target's final norm."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.speculative_config.draft_model_config.hf_config
        # Counted on from the target's layers, so that both keep their keys and values under names of their own.
        layer = vllm_config.model_config.get_num_layers(vllm_config.parallel_config)
        self.embed_tokens = SharedLater(config.hidden_size)
        self.enorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.hnorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.eh_proj = ReplicatedLinear(
            2 * config.hidden_size,
            config.hidden_size,
            bias=False,
            params_dtype=vllm_config.model_config.dtype,
            prefix=maybe_prefix(prefix, "eh_proj"),
            return_bias=False,
        )
        self.block = LlamaDecoderLayer(vllm_config, prefix=maybe_prefix(prefix, f"layers.{layer}"), config=config)
        self.norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        hidden_states: torch.Tensor,
        inputs_embeds: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states that give the draft tokens, and those fed back: the same."""
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        inputs_embeds = torch.where(positions.unsqueeze(-1) == 0, 0, inputs_embeds)
        x = self.eh_proj(torch.cat((self.enorm(inputs_embeds), self.hnorm(hidden_states)), dim=-1))
        x, residual = self.block(positions, x, None)
        hidden, _ = self.norm(x, residual)
        return hidden, hidden


# The newer model runner of 0.26 hands image embeddings only to a draft that is itself registered as multimodal; later
# versions ask for `supports_multimodal_embeddings`.
@MULTIMODAL_REGISTRY.register_processor(
    JinaOCRMultiModalProcessor, info=JinaOCRProcessingInfo, dummy_inputs=DeepseekOCRDummyInputsBuilder
)
class JinaOCRDraft(nn.Module):
    """FastMTP behind the interface that vLLM has for a draft model."""

    supports_multimodal = True
    supports_multimodal_embeddings = True
    has_own_embed_tokens = False  # vLLM attaches the target's embedding and head
    has_own_lm_head = False

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.config = vllm_config.speculative_config.draft_model_config.hf_config
        self.model = FastMTPHead(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        self.logits_processor = LogitsProcessor(self.config.vocab_size)

    def embed_input_ids(
        self,
        input_ids: torch.Tensor,
        multimodal_embeddings: Any = None,
        *,
        is_multimodal: torch.Tensor | None = None,
    ) -> torch.Tensor:
        embeddings = self.model.embed_tokens(input_ids)
        if multimodal_embeddings is None or len(multimodal_embeddings) == 0:
            return embeddings
        return _merge_multimodal_embeddings(embeddings, multimodal_embeddings, is_multimodal)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        hidden_states: torch.Tensor,
        inputs_embeds: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.model(input_ids, positions, hidden_states, inputs_embeds)

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        return self.logits_processor(self.lm_head, hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Take the head's tensors and the target's norm; copies of what is shared with the target are left out."""
        stacked = {
            ".q_proj": (".qkv_proj", "q"),
            ".k_proj": (".qkv_proj", "k"),
            ".v_proj": (".qkv_proj", "v"),
            ".gate_proj": (".gate_up_proj", 0),
            ".up_proj": (".gate_up_proj", 1),
        }
        ours = ((name, tensor) for full_name, tensor in weights if (name := _own_name(full_name)))
        return AutoWeightsLoader(self).load_weights(ours, mapper=WeightsMapper(orig_to_new_stacked=stacked))


def _own_name(name: str) -> str | None:
    if name == TARGET_NORM:
        return "model.norm.weight"
    if name.startswith(HEAD_BLOCK):
        return "model.block." + name.removeprefix(HEAD_BLOCK)
    return "model." + HEAD_PARTS[name] if name in HEAD_PARTS else None
