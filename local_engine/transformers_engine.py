"""jina-ocr-v1 through Transformers: the model card's recipe, on any device, one page at a time and without draft head.

    async with TransformersEngine(trust_remote_code=True) as engine:
        page = await engine.transcribe(Image.open("page.png"))

The model's architecture is not in Transformers: the snapshot brings it as Python files, which must be allowed to run.
"""

import asyncio
import contextlib
import gc
import os
import threading
import weakref
from collections.abc import AsyncGenerator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from local_engine.engine import Piece, Transcript, collect
from local_engine.errors import EngineClosedError, EngineSetupError, PageRejectedError
from local_engine.loops import LoopGuard
from local_engine.preprocess import DEFAULT_OCR_PROMPT
from local_engine.snapshot import REPOSITORY, read_config, resolve

if TYPE_CHECKING:
    from PIL.Image import Image

NGRAM_SIZE = (
    35  # the model's own generate(): no 35 tokens in a row come again within NGRAM_WINDOW, <td> and </td> excepted
)
NGRAM_WINDOW = 1024

Dtype = Literal["bfloat16", "float32"]


class TransformersEngine:
    """A handle on this process's model; handles with the same arguments share one, loaded with the first page.

    Args:
        model: folder of a snapshot, or the model's name on Hugging Face.
        trust_remote_code: allow the snapshot's Python files to run in this process. They can do whatever you can do;
            use only a snapshot whose source you trust.
        device: as PyTorch names it; None: the first CUDA GPU, else the CPU.
        dtype: "bfloat16" as in the card, or "float32", which some CPUs need to be fast.

    Raises:
        EngineSetupError: `trust_remote_code` is not given.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = REPOSITORY,
        *,
        trust_remote_code: bool = False,
        device: str | None = None,
        dtype: Dtype = "bfloat16",
    ) -> None:
        if not trust_remote_code:
            raise EngineSetupError(
                f"Transformers runs the Python files that the snapshot {os.fspath(model)} brings along, with all "
                "your rights. If you trust its source, pass trust_remote_code=True; the vLLM engine needs none of it."
            )
        self.model = os.fspath(model)
        self._model: _Model | None = _share(self.model, device, dtype)

    async def stream(
        self,
        image: "Image",
        *,
        prompt: str = DEFAULT_OCR_PROMPT,
        max_tokens: int = 4096,
        temperature: float = 0.0,
        no_repeat_ngram_size: int = NGRAM_SIZE,
        ngram_window: int = NGRAM_WINDOW,
    ) -> AsyncGenerator[Piece]:
        """Read one page; its text comes in one piece. Cancelling stops the model at its next token.

        Args:
            image: the page.
            prompt: the instruction; the model was trained on the default and mostly ignores others.
            max_tokens: output tokens at most.
            temperature: 0 is greedy.
            no_repeat_ngram_size: tokens in a row that do not come twice; 0 turns it off.
            ngram_window: last tokens in which they do not.

        Raises:
            EngineSetupError: the model cannot be loaded.
            PageRejectedError: this page cannot be read.
            EngineClosedError: the engine was closed.
        """
        if self._model is None:
            raise EngineClosedError("This TransformersEngine was closed; make a new one.")
        sampling: dict[str, Any] = {
            "max_new_tokens": max_tokens,
            "do_sample": temperature > 0,
            "no_repeat_ngram_size": no_repeat_ngram_size,
            "ngram_window": ngram_window,
        }
        if temperature > 0:
            sampling["temperature"] = temperature
        stop = threading.Event()
        page = asyncio.ensure_future(asyncio.to_thread(self._model.read, image, prompt, sampling, stop))
        try:
            yield await asyncio.shield(page)
        finally:
            stop.set()

    async def transcribe(self, image: "Image", **options: Any) -> Transcript:
        """Read one page; options and errors as for `stream`."""
        return await collect(self.stream(image, **options))

    async def aclose(self) -> None:
        """Give up this handle; with the last one the model's memory is freed."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """As `aclose`, for callers without a loop."""
        self._model = None
        gc.collect()  # a model's modules refer to one another
        with contextlib.suppress(ImportError):
            import torch

            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Model:
    """A loaded model. Its `generate` is not made for several threads, so pages wait for each other."""

    def __init__(self, model: str, device: str | None, dtype: Dtype) -> None:
        self._name = model
        self._device = device
        self._dtype = dtype
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any, str] | None = None

    def read(self, image: "Image", prompt: str, sampling: dict[str, Any], stop: threading.Event) -> Piece:
        """Read one page; `stop` ends it early."""
        with self._lock:
            if stop.is_set():  # given up while it waited
                raise EngineClosedError("The page was cancelled.")
            if self._loaded is None:
                self._loaded = self._load()
            processor, model, device = self._loaded
            try:
                return self._generate(processor, model, device, image, prompt, sampling, stop)
            except EngineClosedError:
                raise
            except Exception as error:
                raise PageRejectedError(
                    f"{self._name} cannot read this page: {type(error).__name__}: {error}"
                ) from error

    def _generate(
        self,
        processor: Any,
        model: Any,
        device: str,
        image: "Image",
        prompt: str,
        sampling: dict[str, Any],
        stop: threading.Event,
    ) -> Piece:
        import torch
        from transformers import StoppingCriteria

        guard = LoopGuard(processor.tokenizer.decode)
        found = []

        class Watch(StoppingCriteria):  # type: ignore[misc]  # Transformers is not typed here
            """Stops at a loop, and when the page was given up."""

            def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
                if (loop := guard.push([int(input_ids[0, -1])])) is not None:
                    found.append(loop)
                done = bool(found) or stop.is_set()
                return torch.full((input_ids.shape[0],), done, device=input_ids.device, dtype=torch.bool)

        inputs = processor.prepare_ocr_inputs(image.convert("RGB"), prompt=prompt, device=device)
        with torch.inference_mode():
            output = model.generate(**inputs, **sampling, stopping_criteria=[Watch()])
        if stop.is_set():
            raise EngineClosedError("The page was cancelled.")
        prompt_tokens = inputs["input_ids"].shape[1]
        output_tokens = output.shape[1] - prompt_tokens
        text = str(processor.decode_ocr(output, inputs["input_ids"]))
        ends = model.generation_config.eos_token_id
        stopped = int(output[0, -1]) in (ends if isinstance(ends, list) else [ends])
        if found:
            kept = output[:, : prompt_tokens + found[0].start + found[0].period]
            keep = len(str(processor.decode_ocr(kept, inputs["input_ids"])))
            return Piece(text, "repetition", prompt_tokens, output_tokens, keep)
        return Piece(text, "stop" if stopped else "length", prompt_tokens, output_tokens)

    def _load(self) -> tuple[Any, Any, str]:
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoProcessor
        except ImportError as error:
            raise EngineSetupError(
                f"The Transformers engine needs {error.name}, which is not installed: "
                'pip install "jina-ocr-loaders[transformers]"'
            ) from error
        folder = resolve(self._name)
        device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            processor = AutoProcessor.from_pretrained(folder, trust_remote_code=True)
            model = AutoModelForCausalLM.from_pretrained(
                folder, config=_own_config(folder), dtype=getattr(torch, self._dtype), trust_remote_code=True
            ).to(device)
        except Exception as error:
            files = ", ".join(sorted(path.name for path in Path(folder).glob("*.py"))) or "none"
            raise EngineSetupError(
                f"Transformers cannot load {self._name} on {device} in {self._dtype}: {type(error).__name__}: {error} "
                f"(Python files in {folder}: {files})"
            ) from error
        return processor, model.eval(), device


def _own_config(folder: Path) -> Any:
    """The snapshot's config by the class that the snapshot brings; None where it brings none.

    Left to itself, Transformers takes the class that another package has registered for the same model type, as vLLM
    does in this process, and the snapshot's model refuses that one.
    """
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    name = read_config(folder).get("auto_map", {}).get("AutoConfig")
    return get_class_from_dynamic_module(name, folder).from_pretrained(folder) if name else None


_models: weakref.WeakValueDictionary[tuple[str, str | None, Dtype], _Model] = weakref.WeakValueDictionary()
_models_lock = threading.Lock()


def _share(model: str, device: str | None, dtype: Dtype) -> _Model:
    key = (os.path.realpath(model) if os.path.exists(model) else model, device, dtype)
    with _models_lock:
        found = _models.get(key)
        if found is None:
            found = _models[key] = _Model(model, device, dtype)
        return found
