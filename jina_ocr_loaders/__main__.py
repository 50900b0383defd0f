"""``jina-ocr``, also as ``python -m jina_ocr_loaders``."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a word, also while it is being imported."""
    try:
        from jina_ocr_loaders.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
