"""The target model with small vision towers, for tiny synthetic snapshots only; the real path never imports it.

Sizes come from the snapshot's `vision_config.width`; vLLM's own class builds towers of one fixed size.
"""

from typing import Any

from transformers import CLIPVisionConfig
from vllm.config import VllmConfig
from vllm.model_executor.models import deepencoder, deepseek_ocr

from local_engine.target import JinaOCRForCausalLM


class SyntheticTarget(JinaOCRForCausalLM):
    """`JinaOCRForCausalLM` whose SAM and CLIP have the sizes that the configuration names."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        width = vllm_config.model_config.hf_config.vision_config.width
        sam, clip = width["sam_vit_b"], width["clip-l-14-224"]

        def small_sam() -> Any:
            return deepencoder._build_sam(sam["width"], sam["layers"], sam["heads"], sam["global_attn_indexes"])

        def small_clip(**sizes: Any) -> CLIPVisionConfig:
            return CLIPVisionConfig(**sizes | {"num_hidden_layers": clip["layers"]})

        # vLLM has no setting for the sizes, so the two builders are exchanged while this one model is built.
        builders = deepseek_ocr.build_sam_vit_b, deepseek_ocr.CLIPVisionConfig
        deepseek_ocr.build_sam_vit_b, deepseek_ocr.CLIPVisionConfig = small_sam, small_clip
        try:
            super().__init__(vllm_config=vllm_config, prefix=prefix)
        finally:
            deepseek_ocr.build_sam_vit_b, deepseek_ocr.CLIPVisionConfig = builders
