"""What the two engines that run the model on this machine share: the local engine's errors and pieces as the seam's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from jina_ocr_loaders.engines.base import Delta
from jina_ocr_loaders.errors import EngineNotReadyError, RequestRejectedError, TransientError
from jina_ocr_loaders.results import Usage
from local_engine.engine import Piece
from local_engine.errors import EngineDiedError, LocalEngineError, PageRejectedError


@contextmanager
def local_errors() -> Iterator[None]:
    """Raise the local engine's errors as those that tell the pipeline whether another attempt makes sense."""
    try:
        yield
    except EngineDiedError as error:
        raise TransientError(str(error), code="engine_died") from error
    except PageRejectedError as error:
        raise RequestRejectedError(str(error)) from error
    except LocalEngineError as error:
        raise EngineNotReadyError(str(error)) from error


async def deltas(pieces: AsyncGenerator[Piece], model: str) -> AsyncGenerator[Delta]:
    """The local engine's pieces as deltas, the last with finish reason, usage and model."""
    with local_errors():
        async with aclosing(pieces):
            async for piece in pieces:
                if piece.finish_reason is None:
                    yield Delta(piece.text)
                else:
                    usage = Usage(piece.prompt_tokens, piece.output_tokens)
                    yield Delta(piece.text, finish_reason=piece.finish_reason, usage=usage, model=model)
