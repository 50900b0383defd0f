"""The draft head on real vLLM: it changes how fast the text comes, never the text."""

import pytest

from local_engine import SnapshotError

from .conftest import accepted, read, start_llm, token_ids

pytestmark = pytest.mark.engine

LENGTH = 100  # tokens per page
SIZES = [(300, 200), (1000, 1400), (1300, 900), (1500, 1500)]  # none, 2 x 3, 3 x 2 and 3 x 3 tiles


@pytest.fixture(scope="module")
def pages(page):
    return [page(width, height, seed) for seed, (width, height) in enumerate(SIZES)]


@pytest.fixture(scope="module", params=["cycle", "live"])
def undrafted(request, snapshots, pages):
    """A snapshot of each kind, and what it says without draft head."""
    snapshot = snapshots(kind=request.param)
    with start_llm(snapshot.path, 0) as llm:
        return snapshot, token_ids(read(llm, pages, max_tokens=LENGTH, ignore_eos=True))


def test_what_is_said_without_draft_head(undrafted):
    """The text built into a `cycle` snapshot; a `live` one says something else of each page: parity means something."""
    snapshot, said = undrafted
    if snapshot.tokens:
        assert said == [list(snapshot.generated(LENGTH))] * len(SIZES)
    else:
        assert len({tuple(text) for text in said}) == len(SIZES)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="eager"),
        pytest.param(
            {"enforce_eager": False, "max_num_batched_tokens": 320, "max_num_seqs": 8},
            id="compiled, prefilled in chunks",
        ),
    ],
)
def test_drafting_does_not_change_the_text(undrafted, pages, settings):
    """K = 3 gives the text of K = 0 token for token, in fp32 with the card's sampling, on tiled pages read together."""
    snapshot, expected = undrafted
    with start_llm(snapshot.path, 3, **settings) as llm:
        outputs = read(llm, pages, max_tokens=LENGTH, ignore_eos=True)
        drafts, positions = accepted(llm)
    assert token_ids(outputs) == expected
    assert drafts > 0
    # Neither always right nor always wrong: both ways of a verification are taken.
    assert 0 < positions[2] <= positions[1] <= positions[0] < drafts


@pytest.fixture
def broken_feedback():
    """A draft head that feeds back the state it was given, not the one it made."""
    from vllm.model_executor.models.registry import ModelRegistry

    from local_engine import plugin
    from local_engine.fastmtp import JinaOCRDraft

    class Broken(JinaOCRDraft):
        def forward(self, input_ids, positions, hidden_states, inputs_embeds=None):
            hidden, _ = super().forward(input_ids, positions, hidden_states, inputs_embeds)
            return hidden, hidden_states

    ModelRegistry.register_model(plugin.DRAFT, Broken)
    yield
    ModelRegistry.register_model(plugin.DRAFT, plugin.ARCHITECTURES[plugin.DRAFT])


def drafts_of_state_alone(snapshot, page):
    """Read a page with a head that reads only the state fed back to it; return what was accepted at each position."""
    with start_llm(snapshot.path, 3) as llm:
        (output,) = read(llm, [page(1000, 1400)], max_tokens=81, ignore_eos=True)
        positions = accepted(llm)[1]
    assert list(output.outputs[0].token_ids) == list(snapshot.generated(81))
    return positions


def test_the_heads_own_state_is_fed_back(snapshots, page):
    """Drafts 2 and 3 are right as often as built in, which needs that step k is given what step k - 1 made."""
    snapshot = snapshots(kind="cycle", draft="state")
    positions = drafts_of_state_alone(snapshot, page)
    assert positions == list(snapshot.accepted(3, 81))
    assert positions[2] > 0


@pytest.mark.usefixtures("broken_feedback")
def test_broken_feedback_shows_in_the_figures_and_not_in_the_text(snapshots, page):
    """The negative control: with another state fed back, drafts 2 and 3 are never right; the text still is."""
    snapshot = snapshots(kind="cycle", draft="state", seed=1)  # not seen before: vLLM remembers a directory's class
    assert drafts_of_state_alone(snapshot, page) == [*snapshot.accepted(1, 81), 0, 0]


def test_the_draft_can_be_tried_before_the_embedding_is_shared():
    """vLLM 0.26 embeds a token with the draft as it is built, and hands it no images if that fails."""
    import torch

    from local_engine.fastmtp import SharedLater

    stand_in = SharedLater(8)
    assert stand_in(torch.tensor([[1]])).shape == (1, 1, 8)
    assert stand_in.weight.shape[-1] == 8
    assert list(stand_in.parameters()) == []  # nothing that a loader would miss


def test_duplicates_of_shared_tensors_are_left_out(snapshots, page):
    """With copies of embedding, norm and head for the draft: the known text, and drafts accepted as built in."""
    snapshot = snapshots(kind="cycle", duplicates=True)
    with start_llm(snapshot.path, 3) as llm:
        (output,) = read(llm, [page(1000, 1400)], max_tokens=400)
        figures = accepted(llm)[1]
    assert output.outputs[0].text == snapshot.text
    assert output.outputs[0].finish_reason == "stop"
    assert figures == list(snapshot.accepted(3, len(output.outputs[0].token_ids)))


def test_a_snapshot_without_draft_head_reads_without_drafting(snapshots, page):
    """K = 0 loads it; K = 3 says what is missing and what to set."""
    snapshot = snapshots(kind="cycle", draft=None)
    with start_llm(snapshot.path, 0) as llm:
        (output,) = read(llm, [page(300, 200)], max_tokens=400)
    assert output.outputs[0].text == snapshot.text
    with pytest.raises(SnapshotError, match="num_speculative_tokens=0"), start_llm(snapshot.path, 3):
        pass
