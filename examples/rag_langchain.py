"""Search in a PDF with LangChain: pages are read by OCR, embedded into a vector store in memory, found by meaning.

    python examples/rag_langchain.py ["Why are there birds on the tidal flats?"]

Runs offline (embedding.py says what to install). ``index`` remembers what is stored: run on the same file again, it
would embed only the pages that have changed.
"""

import sys
from pathlib import Path

from embedding import embed
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore

from jina_ocr_loaders import JinaOCRLoader

SAMPLE = Path(__file__).with_name("sample.pdf")


class MiniLM(Embeddings):
    """The local embedding model."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [embed(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return embed(text)


def main(questions: list[str]) -> None:
    store = InMemoryVectorStore(MiniLM())
    records = InMemoryRecordManager("sample")
    records.create_schema()
    loader = JinaOCRLoader(SAMPLE)
    index(loader, records, store, cleanup="incremental", source_id_key="source", key_encoder="sha256")
    for question in questions:
        for found, score in store.similarity_search_with_score(question, k=1):
            print(f"--- page {found.metadata['page_label']}, similarity {score:.2f}\n{found.page_content}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or ["Why are there birds on the tidal flats?"])
