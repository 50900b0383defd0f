"""vLLM's processor of DeepSeek-OCR with as many tiles as the model was trained on.

The number of tiles is the processor's `max_crops`, 9 unless `mm_processor_kwargs={"max_crops": 6}` says otherwise.
Pixels and placeholder tokens are both made from it, so they cannot disagree.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm.model_executor.models.deepseek_ocr import DeepseekOCRMultiModalProcessor, DeepseekOCRProcessingInfo
from vllm.multimodal.inputs import MultiModalKwargsItems
from vllm.multimodal.parse import ImageEmbeddingItems, ImageProcessorItems, ImageSize, MultiModalDataItems
from vllm.multimodal.processing import PromptReplacement, PromptUpdate

from local_engine.preprocess import MAX_TILES, image_token_count, largest_image


class JinaOCRProcessingInfo(DeepseekOCRProcessingInfo):
    """What vLLM asks about an image before it is processed."""

    def get_hf_processor(self, **kwargs: object) -> Any:
        return super().get_hf_processor(**{"max_crops": MAX_TILES, **self.ctx.get_merged_mm_kwargs(kwargs)})

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        return {"image": 1}  # a prompt is one page

    def get_num_image_tokens(self, *, image_width: int, image_height: int, cropping: bool = True) -> int:
        return image_token_count(image_width, image_height, self.get_hf_processor().max_crops if cropping else 1)

    def get_image_size_with_most_features(self) -> ImageSize:
        # The stock answer is a 2 x 2 grid; memory for images would be planned for fewer tokens than a page can have.
        width, height = largest_image(self.get_hf_processor().max_crops)
        return ImageSize(width=width, height=height)


class JinaOCRMultiModalProcessor(DeepseekOCRMultiModalProcessor):
    """Puts as many `<image>` tokens into the prompt as the tiles of the request's own processor need."""

    def _get_prompt_updates(
        self,
        mm_items: MultiModalDataItems,
        hf_processor_mm_kwargs: Mapping[str, object],
        out_mm_kwargs: MultiModalKwargsItems,
    ) -> Sequence[PromptUpdate]:
        processor = self.info.get_hf_processor(**hf_processor_mm_kwargs)

        def placeholders(index: int) -> list[int]:
            images = mm_items.get_items("image", (ImageEmbeddingItems, ImageProcessorItems))
            if isinstance(images, ImageEmbeddingItems):
                count = images.get_feature_size(index)
            else:
                size = images.get_image_size(index)
                count = image_token_count(size.width, size.height, processor.max_crops)
            return [processor.image_token_id] * count

        return [PromptReplacement(modality="image", target=[processor.image_token_id], replacement=placeholders)]
