"""The target model: vLLM's DeepSeek-OCR, made to load and serve jina-ocr-v1."""

# ruff: noqa: E402  # the version is checked first: on another vLLM the imports below may fail, and not say why

from typing import Any

from local_engine.plugin import ONE_GROUP_ROUTING, check_vllm_version

check_vllm_version()

import torch
from vllm.config import VllmConfig
from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter
from vllm.model_executor.layers.fused_moe.router.fused_topk_router import FusedTopKRouter
from vllm.model_executor.layers.fused_moe.router.grouped_topk_router import GroupedTopKRouter
from vllm.model_executor.models.deepseek_ocr import DeepseekOCRDummyInputsBuilder, DeepseekOCRForCausalLM
from vllm.model_executor.models.utils import WeightsMapper
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.platforms import current_platform

from local_engine.processor import JinaOCRMultiModalProcessor, JinaOCRProcessingInfo
from local_engine.resampling import mend_resampling


def ungrouped(router: GroupedTopKRouter) -> BaseRouter:
    """The router that does the same in one kernel, if all experts are one group, as in this model; else `router`.

    vLLM takes DeepSeek's experts through its grouped top-k (two top-k, a mask, a softmax: five kernels a layer).
    """
    if router.num_expert_group != 1 or router.e_score_correction_bias is not None or router.routed_scaling_factor != 1:
        return router
    return FusedTopKRouter(
        router.top_k, router.global_num_experts, router.scoring_func, router.renormalize, router.eplb_state
    )


@MULTIMODAL_REGISTRY.register_processor(
    JinaOCRMultiModalProcessor, info=JinaOCRProcessingInfo, dummy_inputs=DeepseekOCRDummyInputsBuilder
)
class JinaOCRForCausalLM(DeepseekOCRForCausalLM):
    """`DeepseekOCRForCausalLM` that leaves the draft head's tensors alone and reads pages of up to nine tiles.

    `embed_multimodal` is where the vision path begins; a faster one replaces it and the registered processor.
    """

    hf_to_vllm_mapper = WeightsMapper(orig_to_new_prefix={"mtp_": None}) | DeepseekOCRForCausalLM.hf_to_vllm_mapper

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.config.image_token_index = self.image_token_id  # vLLM reads it there when a draft model is loaded
        if not current_platform.is_cuda():
            return
        mend_resampling()
        if vllm_config.additional_config.get(ONE_GROUP_ROUTING, True):
            for module in self.modules():
                if isinstance(router := getattr(module, "router", None), GroupedTopKRouter):
                    module.router = ungrouped(router)

    def embed_multimodal(self, **kwargs: Any) -> Any:
        """Embeddings of each page: local tiles, global view, separator. None without pages.

        vLLM takes pixels that sum to zero for absent ones, and then makes too few embeddings: a page that is half black
        and half white would end the engine. Here they are absent if there are none.
        """
        if kwargs.get("pixel_values") is None:
            return None
        grids = kwargs["images_spatial_crop"].to(dtype=torch.long)
        return self._pixel_values_to_embedding(kwargs["pixel_values"], kwargs["images_crop"], grids)

    def _encode_local_features(self, patches: torch.Tensor, crop_shape: torch.Tensor) -> torch.Tensor | None:
        if not len(patches):
            return None
        sam = self.sam_model(patches)
        clip = self.vision_model(patches, sam)
        features = self.projector(torch.cat((clip[:, 1:], sam.flatten(2).permute(0, 2, 1)), dim=-1))
        return self._assemble_patch_grid(features, crop_shape)
