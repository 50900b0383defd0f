"""Search in a PDF with LlamaIndex: pages are read by OCR, cut by heading, embedded, and found again by meaning.

    python examples/rag_llama_index.py ["Why are there birds on the tidal flats?"]

Runs offline (embedding.py says what to install). For answers in sentences give a model of yours to
``index.as_query_engine(llm=...)``.
"""

import sys
from pathlib import Path

from embedding import embed
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.node_parser import MarkdownNodeParser

from jina_ocr_loaders import JinaOCRReader

SAMPLE = Path(__file__).with_name("sample.pdf")


class MiniLM(BaseEmbedding):
    """The local embedding model."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return embed(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return embed(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return embed(query)


def main(questions: list[str]) -> None:
    documents = JinaOCRReader().load_data(SAMPLE)
    nodes = MarkdownNodeParser().get_nodes_from_documents(documents)
    index = VectorStoreIndex(nodes, embed_model=MiniLM())
    retriever = index.as_retriever(similarity_top_k=1)
    for question in questions:
        for found in retriever.retrieve(question):
            print(f"--- page {found.metadata['page_label']}, similarity {found.score:.2f}\n{found.get_content()}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or ["Why are there birds on the tidal flats?"])
