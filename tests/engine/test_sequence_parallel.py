from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from elastic_dit.engine.attention import Layout, UlyssesMode, share, ulysses_attention
from elastic_dit.engine.groups import Group, GroupKey
from elastic_dit.engine.sequence_parallel import SequenceParallel
from elastic_dit.errors import UnsupportedParallelism
from elastic_dit.families.qwen_image import QwenImageFamily
from elastic_dit.families.sequence import (
    IMAGE,
    Cut,
    SequencePlan,
    SequenceShape,
    allowed_dops,
)
from elastic_dit.families.wan import WanFamily
from tests.engine.members import members
from tests.engine.parallel_cases import BUILDERS, engine_of, request_of, table_of

TOLERANCE = 1e-5
TIMEOUT_S = 30.0


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def group_of(address: str, gpu: int, gpus: tuple[int, ...]) -> Group:
    return table_of(address, gpu, TIMEOUT_S).get(GroupKey(gpus, 0))


# ---------------------------------------------------------------------- attention
MASKS = {
    "none": None,
    "text padded": "keys",
    "text padded, additive": "additive",
    "queries and keys": "both",
    "own part": "own",
}


def whole_mask(kind: str | None, batch: int, text: int, image: int) -> torch.Tensor | None:
    """Hides the last third of the text."""
    total = text + image
    keys = torch.ones(batch, 1, 1, total, dtype=torch.bool)
    keys[..., text - text // 3 : text] = False
    if kind == "additive":
        return torch.zeros(keys.shape).masked_fill(~keys, -torch.inf)
    if kind == "both":
        return keys.expand(batch, 1, total, total).clone()
    return None if kind is None else keys


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize(("gpus", "heads"), [((0, 1), 3), ((0, 1, 2, 3), 5)])
def test_divided_attention_is_attention(
    gpus: tuple[int, ...], heads: int, mask: str | None
) -> None:
    batch, text, image, width = 2, 7, 14, 8
    streams = [noise(3, batch, heads, length, width) for length in (text, image)]
    given_mask = whole_mask(mask, batch, text, image)
    whole = functional.scaled_dot_product_attention(
        *torch.cat(streams, dim=3), attn_mask=given_mask, scale=0.3
    )
    layout = Layout([text, image], len(gpus))

    def attend(address: str, gpu: int) -> float:
        group = group_of(address, gpu, gpus)
        parts = [stream.tensor_split(group.size, dim=3)[group.rank] for stream in streams]
        own = given_mask
        if mask == "own":
            split = given_mask.split([text, image], dim=-1)
            own = torch.cat([m.tensor_split(group.size, -1)[group.rank] for m in split], -1)
        q, k, v = torch.cat(parts, dim=3)
        out = ulysses_attention(q, k, v, group=group, layout=layout, mask=own, scale=0.3)
        places = layout.order.split(layout.rows)[group.rank]
        return float((out - whole[:, :, places]).abs().max())

    with members() as start:
        errors = start.run(attend, gpus)
    assert max(errors) <= TOLERANCE


@pytest.mark.parametrize(
    ("mask", "words"),
    [((1, 2, 1, 6), "between attention heads"), ((1, 1, 1, 5), r"mask of shape \[1, 1, 1, 5\]")],
)
def test_masks_it_cannot_divide_are_refused(mask: tuple[int, ...], words: str) -> None:
    class Whole(Group):
        def all_to_all(self, send: Any, send_rows: Any, receive_rows: Any) -> Any:
            return send.new_zeros(sum(receive_rows), *send.shape[1:])

    group = Whole(GroupKey((0, 1), 0), 0, None, torch.device("cpu"))
    q = noise(1, 2, 3, 4)
    with pytest.raises(UnsupportedParallelism, match=words):
        ulysses_attention(q, q, q, group=group, layout=Layout([6], 2), mask=torch.ones(mask))


def test_attention_of_other_kinds_is_refused() -> None:
    group = Group(GroupKey((0, 1), 0), 0, None, torch.device("cpu"))
    q = noise(1, 2, 3, 4)
    with UlyssesMode(group, Layout([6], 2)):
        with pytest.raises(UnsupportedParallelism, match="causal"):
            functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        with pytest.raises(UnsupportedParallelism, match="not 3 tokens each"):
            functional.scaled_dot_product_attention(q, q[:, :, :2], q[:, :, :2])


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=3), size=st.sampled_from([2, 3, 4, 8])
)
def test_a_layout_places_every_token_once(lengths: list[int], size: int) -> None:
    layout = Layout(lengths, size)
    assert sorted(layout.order.tolist()) == list(range(sum(lengths)))
    assert sum(layout.rows) == layout.total == sum(lengths)
    assert layout.rows == [
        sum(part) for part in zip(*(share(n, size) for n in lengths), strict=True)
    ]


# ---------------------------------------------------------------------- transformers
def padded(tokens: int, real: int) -> torch.Tensor:
    return (torch.arange(tokens) < real)[None]


FORWARDS: dict[str, tuple[str, SequencePlan, dict[str, Any]]] = {
    "wan": (
        "wan",
        WanFamily.sequence,
        {
            "hidden_states": noise(1, 16, 3, 10, 6),  # 45 tokens
            "timestep": torch.tensor([500]),
            "encoder_hidden_states": noise(1, 32, 32),
        },
    ),
    "wan from an image": (
        "wan_i2v",
        WanFamily.sequence,
        {
            "hidden_states": noise(1, 36, 3, 10, 6),
            "timestep": torch.tensor([500]),
            "encoder_hidden_states": noise(1, 512, 32),  # as its attention takes for granted
            "encoder_hidden_states_image": noise(1, 257, 8),
        },
    ),
    "qwen, padded text": (
        "qwen_image",
        QwenImageFamily.sequence,
        {
            "hidden_states": noise(1, 25, 16),
            "timestep": torch.tensor([0.5]),
            "encoder_hidden_states": noise(1, 13, 16),
            "encoder_hidden_states_mask": padded(13, 9),
            "img_shapes": [[(1, 5, 5)]],
        },
    ),
    "qwen, two texts in a batch": (
        "qwen_image",
        QwenImageFamily.sequence,
        {
            "hidden_states": noise(2, 24, 16),
            "timestep": torch.tensor([0.5, 0.5]),
            "encoder_hidden_states": noise(2, 13, 16),
            "encoder_hidden_states_mask": torch.cat([padded(13, 13), padded(13, 4)]),
            "img_shapes": [[(1, 4, 6)]] * 2,
        },
    ),
}


@cache
def transformer(model: str) -> torch.nn.Module:
    return BUILDERS[model]().transformer


@pytest.mark.parametrize("case", FORWARDS)
@pytest.mark.parametrize("gpus", [(0, 1), (1, 3), (0, 1, 2, 3)], ids=str)
@torch.no_grad()
def test_a_divided_transformer_gives_what_a_whole_one_gives(
    case: str, gpus: tuple[int, ...]
) -> None:
    name, plan, inputs = FORWARDS[case]
    model = transformer(name)
    whole = model(**inputs, return_dict=False)[0]

    @torch.no_grad()
    def forward(address: str, gpu: int) -> dict[str, Any]:
        parallel = SequenceParallel([model], plan)
        group = group_of(address, gpu, gpus)
        idle = model(**inputs, return_dict=False)[0]
        parallel.use(group)
        divided = model(**inputs, return_dict=False)[0]
        start = time.perf_counter()
        for _ in range(100):
            parallel.use(group)
            parallel.use(None)
        switch_s = (time.perf_counter() - start) / 200
        again = model(**inputs, return_dict=False)[0]
        return {
            "same": torch.equal(idle, whole) and torch.equal(again, whole),
            "error": float((divided - whole).abs().max()),
            "switch_s": switch_s,
        }

    with members() as start:
        results = start.run(forward, gpus)
    assert all(result["same"] for result in results)
    assert max(result["error"] for result in results) <= TOLERANCE
    assert min(result["switch_s"] for result in results) < 1e-3


@pytest.mark.parametrize(
    ("tokens", "text", "words"),
    [(1, 13, "1 tokens of hidden_states"), (25, 1, "1 tokens of encoder_hidden_states")],
)
def test_fewer_tokens_than_members_are_refused(tokens: int, text: int, words: str) -> None:
    model = transformer("qwen_image")
    inputs = {
        **FORWARDS["qwen, padded text"][2],
        "hidden_states": noise(1, tokens, 16),
        "encoder_hidden_states": noise(1, text, 16),
        "encoder_hidden_states_mask": None,
        "img_shapes": [[(1, tokens // 5 or 1, min(tokens, 5))]],
    }

    def forward(_: str, gpu: int) -> str:
        parallel = SequenceParallel([model], QwenImageFamily.sequence)
        parallel.use(Group(GroupKey((0, 1), 0), gpu, None, torch.device("cpu")))
        with pytest.raises(UnsupportedParallelism) as refused:
            model(**inputs)
        return str(refused.value)

    with members() as start:
        assert start.start(forward, 0).result() == f"{words} cannot be divided over 2 GPUs"


def test_an_attention_kernel_that_bypasses_the_exchange_is_an_error() -> None:
    model = transformer("wan")
    inputs = FORWARDS["wan"][2]

    def forward(_: str, gpu: int) -> str:
        parallel = SequenceParallel([model], WanFamily.sequence)
        attention = model.blocks[0].attn1
        attention.processor = lambda attn, hidden_states, *_, **__: hidden_states
        parallel.use(Group(GroupKey((0, 1), 0), gpu, None, torch.device("cpu")))
        with pytest.raises(UnsupportedParallelism) as refused:
            model(**inputs)
        return str(refused.value)

    with members() as start:
        message = start.start(forward, 0).result()
    assert message == "blocks.0.attn1 uses an attention kernel other than torch's own"


def test_a_plan_that_does_not_fit_is_refused() -> None:
    def build(_: str, __: int) -> list[str]:
        messages = []
        plain = torch.nn.Sequential(torch.nn.Linear(2, 2))
        for model, plan in (
            (plain, SequencePlan(attention={"0": (IMAGE,)})),
            (transformer("wan"), SequencePlan(attention={"layers.*.attn": (IMAGE,)})),
        ):
            with pytest.raises(UnsupportedParallelism) as refused:
                SequenceParallel([model], plan)
            messages.append(str(refused.value))
        return messages

    with members() as start:
        assert start.start(build, 0).result() == [
            "Sequential has no plan of its own",
            "WanTransformer3DModel has no layers.*.attn",
        ]


def test_a_plan_in_our_words_is_that_of_diffusers() -> None:
    cut = Cut(1, 4, output=True)
    plan = SequencePlan(
        attention={"blocks.*.attn1": (IMAGE,)},
        cuts={"rope": {0: cut, 1: cut}, "blocks.0": {IMAGE: Cut(1, 3)}},
    )
    _, own, inputs = FORWARDS["wan"]

    @torch.no_grad()
    def forward(address: str, gpu: int) -> list[torch.Tensor]:
        outputs = []
        for each in (own, plan):
            model = BUILDERS["wan"]().transformer.eval()
            parallel = SequenceParallel([model], each)
            parallel.use(table_of(address, gpu, TIMEOUT_S).get(GroupKey((0, 1), len(outputs))))
            outputs.append(model(**inputs, return_dict=False)[0])
        return outputs

    with members() as start:
        for theirs, ours in start.run(forward, (0, 1)):
            assert torch.equal(theirs, ours)


# ---------------------------------------------------------------------- what is allowed
def test_allowed_degrees_follow_from_the_request() -> None:
    wan, qwen = engine_of("wan"), engine_of("qwen_image")
    assert wan.allowed_dops(request_of("wan"), 8) == (1, 2, 4)  # 4 heads
    assert wan.allowed_dops(request_of("wan"), 2) == (1, 2)
    short = request_of("qwen").model_copy(update={"negative_prompt": ""})
    tokens = qwen.count_tokens("qwen_image", "")
    expected = tuple(dop for dop in (1, 2, 4) if dop <= max(tokens, 1))
    assert qwen.allowed_dops(short, 8) == expected
    unguided = short.model_copy(update={"guidance_scale": 1.0})
    assert qwen.allowed_dops(unguided, 8) == (1, 2, 4)


@given(
    heads=st.integers(1, 64),
    tokens=st.integers(1, 10_000),
    text=st.none() | st.integers(1, 600),
    limit=st.integers(1, 64),
)
def test_allowed_degrees_leave_nobody_without_work(
    heads: int, tokens: int, text: int | None, limit: int
) -> None:
    dops = allowed_dops(SequenceShape(heads, tokens, text), limit)
    assert dops[0] == 1
    assert all(dop <= limit for dop in dops)
    for dop in dops[1:]:
        each = -(-heads // dop)
        assert heads - each * (dop - 1) >= 1
        assert min(share(tokens, dop)) >= 1
        assert text is None or min(share(text, dop)) >= 1
