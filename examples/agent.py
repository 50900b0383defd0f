"""An agent that reads documents: a chat model of LangChain with JinaOCRTool.

    python examples/agent.py                       a rehearsal without a model: it reads sample.pdf by script
    python examples/agent.py openai:gpt-5-mini     a real one (pip install langchain-openai)

Needs pip install langchain. The agent may open public web addresses and, because the policy says so, the files of this
folder: nothing else.
"""

import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage

from jina_ocr_loaders import JinaOCRTool
from jina_ocr_loaders.access import AccessPolicy

FOLDER = Path(__file__).parent


class Rehearsal(GenericFakeChatModel):
    """Says its lines in order, whatever it is told."""

    def bind_tools(self, tools: object, **options: object) -> BaseChatModel:
        return self


def rehearsal() -> BaseChatModel:
    """A model that reads the sample, tries what it may not, and ends."""
    calls = [
        {"name": "read_document", "args": {"source": "sample.pdf", "pages": "1"}, "id": "1"},
        {"name": "read_document", "args": {"source": "/etc/passwd"}, "id": "2"},
    ]
    return Rehearsal(messages=iter([AIMessage("", tool_calls=calls), AIMessage("That is all I could read.")]))


def main(model: str | None) -> None:
    tool = JinaOCRTool(policy=AccessPolicy(allowed_roots=[FOLDER]))
    agent = create_agent(init_chat_model(model) if model else rehearsal(), [tool])
    question = "What is sample.pdf about? Read its first page."
    for message in agent.invoke({"messages": [("user", question)]})["messages"]:
        message.pretty_print()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
