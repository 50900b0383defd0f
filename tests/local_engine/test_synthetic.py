"""Synthetic snapshots: the real shape, and weights that act as they are said to."""

import itertools
import json
import math
import shutil

import pytest

from local_engine.synthetic import EOS, FULL, TINY, tensor_shapes

from .conftest import accepted, read, start_llm, token_ids

engine = pytest.mark.engine
pytestmark = pytest.mark.timeout(900)


def test_the_full_size_has_all_tensors_of_the_real_model():
    """2,722 tensors and 3.37 billion parameters, with shapes that the reference gives."""
    shapes = tensor_shapes(FULL)
    assert len(shapes) == 2722
    assert 6.7e9 < 2 * sum(math.prod(shape) for shape in shapes.values()) < 6.8e9
    assert shapes["model.embed_tokens.weight"] == shapes["lm_head.weight"] == (129280, 1280)
    assert shapes["model.layers.0.mlp.gate_proj.weight"] == (6848, 1280)
    assert shapes["model.layers.11.mlp.experts.63.down_proj.weight"] == (1280, 896)
    assert shapes["model.layers.1.mlp.gate.weight"] == (64, 1280)
    assert shapes["model.layers.1.mlp.shared_experts.up_proj.weight"] == (1792, 1280)
    assert shapes["model.sam_model.blocks.2.attn.rel_pos_h"] == (127, 64)
    assert shapes["model.sam_model.blocks.1.attn.rel_pos_h"] == (27, 64)
    assert shapes["model.vision_model.transformer.layers.23.self_attn.qkv_proj.weight"] == (3072, 1024)
    assert shapes["model.projector.layers.weight"] == (1280, 2048)
    assert shapes["mtp_module.heads.0.eh_proj.weight"] == (1280, 2560)
    assert "model.view_seperator" in shapes  # sic


def test_the_tiny_size_has_the_same_kinds_of_tensors_and_about_50_mb():
    """Every tensor of the tiny model has its namesake in the full one."""
    tiny = tensor_shapes(TINY)
    assert set(tiny) < set(tensor_shapes(FULL))
    assert 45e6 < 2 * sum(math.prod(shape) for shape in tiny.values()) < 55e6


@engine
@pytest.mark.parametrize("options", [{}, {"draft": None}, {"duplicates": True}], ids=str)
def test_a_snapshot_holds_what_was_asked_for(snapshots, options):
    """The shards and their index agree with the listed shapes, with and without draft tensors and duplicates."""
    from safetensors import safe_open

    snapshot = snapshots(kind="cycle", **options)
    found = {}
    for shard in sorted(snapshot.path.glob("*.safetensors")):
        with safe_open(shard, "pt") as tensors:
            found |= {name: (shard.name, tuple(tensors.get_slice(name).get_shape())) for name in tensors.keys()}  # noqa: SIM118
    copies = {
        "mtp_embed_tokens.weight",
        *(f"mtp_module.heads.0.shared_head.{part}.weight" for part in ("norm", "local_head")),
    }
    expected = {
        name: shape
        for name, shape in tensor_shapes(TINY).items()
        if options.get("draft", "embedding") or not name.startswith("mtp_")
    }
    assert {name: shape for name, (_, shape) in found.items() if name not in copies} == expected
    assert copies & set(found) == (copies if options.get("duplicates") else set())
    index = json.loads((snapshot.path / "model.safetensors.index.json").read_text())["weight_map"]
    assert index == {name: shard for name, (shard, _) in found.items()}
    assert len(set(index.values())) == 2


@engine
def test_duplicates_equal_what_they_copy(snapshots):
    """The draft's own embedding, norm and head are the target's."""
    import torch
    from safetensors.torch import load_file

    snapshot = snapshots(kind="cycle", duplicates=True)
    tensors = {}
    for shard in snapshot.path.glob("*.safetensors"):
        tensors |= load_file(shard)
    assert torch.equal(tensors["mtp_embed_tokens.weight"], tensors["model.embed_tokens.weight"])
    assert torch.equal(tensors["mtp_module.heads.0.shared_head.norm.weight"], tensors["model.norm.weight"])
    assert torch.equal(tensors["mtp_module.heads.0.shared_head.local_head.weight"], tensors["lm_head.weight"])


@engine
def test_the_same_options_write_the_same_weights(snapshots, tmp_path):
    """A snapshot depends on its options and seed alone; another seed changes it."""
    from local_engine.synthetic import write_snapshot

    def content(path):
        return [shard.read_bytes() for shard in sorted(path.glob("*.safetensors"))]

    first = content(snapshots(kind="live").path)
    assert content(write_snapshot(tmp_path / "again", kind="live").path) == first
    assert content(write_snapshot(tmp_path / "other", kind="live", seed=1).path) != first


@engine
def test_the_known_text_is_what_the_tokens_say(snapshots):
    """The text reads as Markdown, no token comes twice, and what follows it is said too."""
    ending, looping = snapshots(kind="cycle"), snapshots(kind="cycle", loop=7)
    assert ending.text.startswith("# Synthetic page\n\n")
    assert len(set(ending.tokens)) == len(ending.tokens) == 120
    assert ending.generated(125) == [*ending.tokens, EOS, *ending.tokens[:4]]
    assert looping.generated(130) == [*looping.tokens, *looping.tokens[-7:], *looping.tokens[-7:-4]]


@engine
def test_accepted_drafts_follow_from_the_wrong_ones(tmp_path):
    """With a draft that is never or always wrong, the counts are those that arithmetic gives."""
    from local_engine.synthetic import write_snapshot

    right = write_snapshot(tmp_path / "right", acceptance=1.0)
    assert right.accepted(3, 121) == [30, 30, 30]  # 120 tokens after the first, four a step
    wrong = write_snapshot(tmp_path / "wrong", acceptance=0.0)
    assert wrong.accepted(3, 120) == [0, 0, 0]
    some = write_snapshot(tmp_path / "some", acceptance=0.79, length=700)
    steps = 700 - sum(some.accepted(3, 700))
    shares = [count / steps for count in some.accepted(3, 700)]
    assert shares == pytest.approx([0.79, 0.79**2, 0.79**3], abs=0.06)


@engine
@pytest.mark.parametrize("acceptance", [0.0, 0.79, 1.0])
def test_a_draft_that_reads_the_state_maps_each_token_to_its_follower(tmp_path, acceptance):
    """Whatever share of the drafts is right, the second half of the projection sends an embedding to the next one."""
    import torch
    from safetensors.torch import load_file

    from local_engine.synthetic import write_snapshot

    snapshot = write_snapshot(tmp_path, draft="state", acceptance=acceptance)
    tensors = {}
    for shard in snapshot.path.glob("*.safetensors"):
        tensors |= load_file(shard)
    embedding = tensors["model.embed_tokens.weight"].float()
    projection = tensors["mtp_module.heads.0.eh_proj.weight"].float()
    assert not projection[:, : TINY.hidden].any()
    tokens = torch.tensor([*snapshot.tokens, EOS, snapshot.tokens[0]])
    reached = embedding[tokens[:-1]] @ projection[:, TINY.hidden :].T
    assert torch.allclose(reached, embedding[tokens[1:]], atol=0.2)


@engine
def test_a_live_snapshot_reads_its_page_and_its_own_text(snapshots, page, tmp_path):
    """The text depends on the image and on all it said, and repeats; the draft depends on the state fed back to it."""
    snapshot = snapshots(kind="live")
    pages = [page(300, 200), page(300, 200, 1), page(1000, 1400), page(300, 200)]
    texts, counts = read_live(snapshot.path, pages)
    assert texts[0] == texts[3]
    assert len({tuple(text) for text in texts}) == 3
    for text in texts:
        assert len(set(text)) < len(text)
        followers = {}
        for token, follower in itertools.pairwise(text):
            followers.setdefault(token, set()).add(follower)
        assert max(map(len, followers.values())) > 1  # the last token alone does not decide
    assert len(pages) * 96 > counts[0] > counts[1] > counts[2] > 0

    stateless = tmp_path / "stateless"
    shutil.copytree(snapshot.path, stateless)
    forget_state(stateless)
    same, other = read_live(stateless, pages)
    assert same == texts
    assert other != counts


def read_live(model, pages):
    """Tokens of each page, and accepted drafts per position."""
    with start_llm(model, 3) as llm:
        return token_ids(read(llm, pages, max_tokens=96, ignore_eos=True)), accepted(llm)[1]


def forget_state(folder):
    """Make a snapshot's draft ignore the fed-back state, the second half of what its projection reads."""
    from safetensors.torch import load_file, save_file

    name = "mtp_module.heads.0.eh_proj.weight"
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    tensors = load_file(folder / index[name])
    tensors[name][:, TINY.hidden :] = 0
    save_file(tensors, folder / index[name], metadata={"format": "pt"})
