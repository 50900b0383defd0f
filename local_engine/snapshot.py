"""The snapshot on disk, and the small directory beside it that vLLM is given for tokenizer and draft head.

vLLM takes the snapshot as it is for the target. For the draft head it needs a model directory of its own, with a flat
configuration; for the prompt it needs a chat template that is not double-escaped. `side_directory` makes both, out of
links, so that nothing of vLLM is patched and nothing in the snapshot is changed.
"""

import hashlib
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local_engine.errors import EngineSetupError
from local_engine.plugin import DRAFT

REPOSITORY = "jinaai/jina-ocr-v1"
NAMES = ("jina-ocr-v1", REPOSITORY, "jina-ai/jina-ocr-v1")  # the spellings in use: API, Hugging Face, API catalogue

HEAD = "mtp_module.heads.0."
HEAD_BLOCK = HEAD + "mtp_block."
HEAD_PARTS = {f"{HEAD}{part}.weight": f"{part}.weight" for part in ("enorm", "hnorm", "eh_proj")}
TARGET_NORM = "model.norm.weight"  # the head ends in the target's own final norm
_BLOCK_PARTS = (
    "input_layernorm",
    "post_attention_layernorm",
    *(f"self_attn.{part}_proj" for part in "qkvo"),
    *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
)
DRAFT_TENSORS = (*HEAD_PARTS, *(f"{HEAD_BLOCK}{part}.weight" for part in _BLOCK_PARTS), TARGET_NORM)

_INDEX = "model.safetensors.index.json"

# The layout of `preprocess`, for `LLM.chat` and `vllm serve`, which put "<image>" and a line end before the text.
CHAT_TEMPLATE = """\
{%- if messages | length != 1 or messages[0]['role'] != 'user' -%}
{{- raise_exception('jina-ocr-v1 reads one page at a time: send one user message with one image and the prompt.') -}}
{%- endif -%}
{{- '<|User|>:\\n' + messages[0]['content'] + '\\n' -}}
{%- if add_generation_prompt -%}{{- '<|Assistant|>:\\n' -}}{%- endif -%}
"""


class SnapshotError(EngineSetupError):
    """The weights are not here, or the directory holds something else."""


def one_name(model: str | os.PathLike[str]) -> str:
    """The same for all spellings of a model: one path for a folder, one of the model's names."""
    name = os.fspath(model)
    if os.path.exists(name):
        return os.path.realpath(name)
    return REPOSITORY if name in NAMES else name


def resolve(model: str | os.PathLike[str]) -> Path:
    """Directory of the snapshot: a local one, or the one that the Hugging Face cache holds. Downloads nothing.

    Raises:
        SnapshotError: it is not on this machine (the message has the command that downloads it), or not jina-ocr-v1.
    """
    name = os.fspath(model)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        if folder.is_absolute() or name.startswith((".", "~")):
            raise SnapshotError(f"there is no directory {folder}")
        folder = _cached(REPOSITORY if name in NAMES else name)
    config = read_config(folder)
    if config.get("model_type") != "deepseek_vl_v2" or "language_config" not in config:
        raise SnapshotError(
            f"{folder} is not a snapshot of {REPOSITORY}: its config.json says model_type {config.get('model_type')!r}"
        )
    return folder.absolute()


def read_config(snapshot: Path) -> dict[str, Any]:
    """The snapshot's config.json."""
    try:
        config = json.loads((snapshot / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SnapshotError(f"{snapshot} has no config.json: it is not a snapshot of {REPOSITORY}") from None
    except ValueError as error:
        raise SnapshotError(f"{snapshot / 'config.json'} is damaged ({error}): download the snapshot again") from None
    if not isinstance(config, dict):
        raise SnapshotError(f"{snapshot / 'config.json'} is damaged: download the snapshot again")
    return config


def tensor_files(snapshot: Path) -> dict[str, str]:
    """File of each tensor, by the tensor's name, from the index or from the headers of the files.

    Raises:
        SnapshotError: a file is missing or cut short.
    """
    if (snapshot / _INDEX).is_file():
        files: dict[str, str] = json.loads((snapshot / _INDEX).read_text(encoding="utf-8"))["weight_map"]
        missing = sorted({file for file in files.values() if not (snapshot / file).is_file()})
        if missing:
            raise SnapshotError(f"{snapshot} is incomplete, {', '.join(missing)} is missing. {_download(REPOSITORY)}")
        return files
    shards = sorted(snapshot.glob("*.safetensors"))
    if not shards:
        raise SnapshotError(f"{snapshot} holds no weights (*.safetensors). {_download(REPOSITORY)}")
    return {name: shard.name for shard in shards for name in _header(shard) if name != "__metadata__"}


def side_directory(snapshot: Path) -> Path:
    """Make, once, the directory that vLLM reads tokenizer and draft head from.

    Returns:
        A directory under the user's cache (`XDG_CACHE_HOME`), made anew when the snapshot changes: `tokenizer/` is the
        snapshot's own with our chat template; `draft/`, if there is a draft head, a flat configuration and links to the
        files that hold it.
    """
    files = tensor_files(snapshot)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "jina-ocr-loaders" / "vllm"
    folder = cache / _fingerprint(snapshot, files)
    if folder.is_dir():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=cache))
    except OSError as error:
        raise EngineSetupError(
            f"cannot write to {cache} ({error}): point XDG_CACHE_HOME to a directory that can be written"
        ) from error
    try:
        _make_tokenizer(snapshot, work / "tokenizer")
        if has_draft(snapshot):
            _make_draft(snapshot, files, work / "draft")
        work.replace(folder)
    except OSError:
        if not folder.is_dir():  # another process was first
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def has_draft(snapshot: Path) -> bool:
    """Whether the snapshot carries all tensors of the draft head."""
    return not missing_draft_tensors(snapshot)


def missing_draft_tensors(snapshot: Path) -> list[str]:
    """Names of the draft head's tensors that are not there."""
    files = tensor_files(snapshot)
    return [name for name in DRAFT_TENSORS if name not in files]


def draft_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Flat configuration of the draft head, from a snapshot's.

    `llama` is what vLLM and Transformers read such a block of plain attention and SwiGLU as; the architecture is ours.
    """
    language = config["language_config"]
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "max_position_embeddings")
    return {
        "architectures": [DRAFT],
        "model_type": "llama",
        "num_hidden_layers": 1,
        **{key: language[key] for key in sizes},
        "num_key_value_heads": language.get("num_key_value_heads", language["num_attention_heads"]),
        "hidden_act": "silu",
        "rms_norm_eps": language.get("rms_norm_eps", 1e-6),
        "rope_theta": language.get("rope_theta", 10000),
        "rope_scaling": language.get("rope_scaling"),
        "tie_word_embeddings": False,
        "torch_dtype": config.get("torch_dtype", "bfloat16"),
        **{key: config[key] for key in ("bos_token_id", "eos_token_id") if key in config},
    }


def _make_tokenizer(snapshot: Path, folder: Path) -> None:
    folder.mkdir()
    # config.json comes along because Transformers picks the tokenizer class by it.
    for name in ("config.json", "tokenizer.json", "special_tokens_map.json", "added_tokens.json"):
        if (snapshot / name).is_file():
            (folder / name).symlink_to(snapshot / name)
    settings = json.loads((snapshot / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def _make_draft(snapshot: Path, files: Mapping[str, str], folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(draft_config(read_config(snapshot))), encoding="utf-8")
    draft_files = {name: files[name] for name in DRAFT_TENSORS}
    for file in set(draft_files.values()):
        (folder / file).symlink_to(snapshot / file)
    (folder / _INDEX).write_text(json.dumps({"metadata": {}, "weight_map": draft_files}), encoding="utf-8")


def _fingerprint(snapshot: Path, files: Mapping[str, str]) -> str:
    digest = hashlib.sha256(f"{snapshot}\n{CHAT_TEMPLATE}".encode())
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        path = snapshot / name
        if not path.is_file():
            raise SnapshotError(f"{snapshot} has no {name}. {_download(REPOSITORY)}")
        digest.update(path.read_bytes())
    digest.update(json.dumps([draft_config(read_config(snapshot)), sorted(files.items())]).encode())
    return digest.hexdigest()[:16]


def _header(shard: Path) -> dict[str, Any]:
    # safetensors: eight bytes of length, little-endian, then JSON
    with shard.open("rb") as file:
        try:
            (size,) = struct.unpack("<Q", file.read(8))
            header: dict[str, Any] = json.loads(file.read(min(size, 100_000_000)))
        except (struct.error, ValueError):
            raise SnapshotError(f"{shard} is damaged. {_download(REPOSITORY)}") from None
    return header


def _cached(repository: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError:  # it comes with vLLM and Transformers
        raise SnapshotError(
            f"the weights of {repository} cannot be looked for without huggingface_hub, which comes with the extras "
            f"vllm and transformers. {_download(repository)}"
        ) from None
    try:
        return Path(snapshot_download(repository, local_files_only=True))
    except LocalEntryNotFoundError:
        raise SnapshotError(f"the weights of {repository} are not on this machine. {_download(repository)}") from None
    except HFValidationError:
        raise SnapshotError(f"{repository!r} is neither a directory nor a Hugging Face repository") from None


def _download(repository: str) -> str:
    return f"Download them (6.7 GB; CC BY-NC 4.0, non-commercial use only): hf download {repository}"
