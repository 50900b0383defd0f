"""Models that follow a script, for agents: they read on while the tool says that there is more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, MessageRole
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool
from pydantic import Field

_MORE = re.compile(r"continue with pages=(\S+)")


def next_call(source: str, answers: Sequence[str]) -> dict[str, str] | None:
    """The arguments of the next tool call after these answers of the tool; None when all is read."""
    if not answers:
        return {"source": source}
    more = _MORE.search(answers[-1])
    return {"source": source, "pages": more[1]} if more else None


class ScriptedChatModel(BaseChatModel):
    """A chat model of LangChain that reads ``source`` to its end and then says what the tool answered last."""

    source: str
    tools: list[Any] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> ScriptedChatModel:
        return self.model_copy(update={"tools": list(tools)})

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        answers = [str(message.content) for message in messages if isinstance(message, ToolMessage)]
        arguments = next_call(self.source, answers)
        calls = [{"name": self.tools[0].name, "args": arguments, "id": str(len(answers))}] if arguments else []
        message = AIMessage(content="" if calls else f"The document says: {answers[-1]}", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


class ScriptedLLM(FunctionCallingLLM):
    """The same for LlamaIndex."""

    source: str

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True)

    def _prepare_chat_with_tools(self, tools: Sequence[BaseTool], **options: Any) -> dict[str, Any]:
        return {"messages": options["chat_history"], "tool_name": tools[0].metadata.name}

    def chat(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponse:
        answers = [str(message.content) for message in messages if message.role == MessageRole.TOOL]
        arguments = next_call(self.source, answers)
        calls = (
            [ToolSelection(tool_id=str(len(answers)), tool_name=options["tool_name"], tool_kwargs=arguments)]
            if arguments
            else []
        )
        message = ChatMessage(role=MessageRole.ASSISTANT, content="" if calls else f"The document says: {answers[-1]}")
        return ChatResponse(message=message, raw=calls)

    async def achat(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponse:
        return self.chat(messages, **options)

    async def astream_chat(self, messages: Sequence[ChatMessage], **options: Any) -> Any:
        async def stream() -> Any:
            yield self.chat(messages, **options)

        return stream()

    def get_tool_calls_from_response(self, response: ChatResponse, **_: Any) -> list[ToolSelection]:
        return list(response.raw or [])

    def complete(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    acomplete = stream_chat = stream_complete = astream_complete = complete
