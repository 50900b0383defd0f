"""What all errors have in common."""

import copy
import errno
import pickle

import pytest

from jina_ocr_loaders import errors
from jina_ocr_loaders.errors import JinaOCRError, PagesFailedError, SourceNotFoundError
from jina_ocr_loaders.results import DocumentResult

CLASSES = sorted(
    (value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, JinaOCRError)),
    key=lambda cls: cls.__name__,
)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_a_copy_says_the_same(cls, again):
    """Errors cross processes and threads with all that they know, whatever built-in class they also are."""
    more = {"result": DocumentResult("a.pdf", "a", (), 0)} if cls is PagesFailedError else {"page": 3, "code": "why"}
    error = cls("It is so.", source="a.pdf", **more)
    other = again(error)
    assert type(other) is cls
    assert str(other) == str(error) == "a.pdf: It is so." if cls is PagesFailedError else "a.pdf, page 3: It is so."
    assert vars(other) == vars(error)


def test_a_missing_file_is_what_python_calls_one():
    """``except FileNotFoundError`` finds it, with errno and filename, after a pickle too."""
    error = pickle.loads(pickle.dumps(SourceNotFoundError("no such file", source="/no/such.pdf")))
    assert isinstance(error, FileNotFoundError)
    assert (error.errno, error.filename, error.strerror) == (errno.ENOENT, "/no/such.pdf", "No such file or directory")
