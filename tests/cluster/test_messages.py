"""Every event and command survives the wire, through msgpack, unchanged."""

from typing import get_args, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.cluster.messages import decode_command, decode_event, encode
from elastic_dit.events import Command, Event
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import ArtifactRef, Failure, PlacementPlan, StageRecord

whole = st.integers(0, 2**31)
text = st.text(max_size=20)
keys = st.builds(StageKey, text, st.sampled_from(Stage))


def a_request(prompt, seed):
    return GenerationRequest.parse(
        request_id="r1",
        model="m",
        prompt=f"x{prompt}",
        width=64,
        height=48,
        num_frames=9,
        fps=8,
        num_inference_steps=3,
        guidance_scale=4.5,
        seed=seed,
    )


BY_TYPE = {
    int: whole,
    float: st.floats(0, 1e6),
    str: text,
    bool: st.booleans(),
    Stage: st.sampled_from(Stage),
    int | None: st.none() | whole,
    tuple[str, ...]: st.lists(text, max_size=3).map(tuple),
    tuple[tuple[Stage, float], ...]: st.lists(
        st.tuples(st.sampled_from(Stage), st.floats(0, 1e6)), max_size=3
    ).map(tuple),
    tuple[int, ...]: st.lists(whole, max_size=8).map(tuple),
    frozenset[tuple[str, Stage]]: st.frozensets(keys.map(tuple), max_size=3),
    dict[int, frozenset[StageKey]]: st.dictionaries(
        whole, st.frozensets(keys, max_size=3), max_size=4
    ),
    GenerationRequest: st.builds(a_request, text, whole),
    GenerationRequest | None: st.none() | st.builds(a_request, text, whole),
}


def records(kind):
    """A strategy for one of our dataclasses, field by field."""
    return st.builds(kind, **{name: BY_TYPE[hint] for name, hint in get_type_hints(kind).items()})


for part in (ArtifactRef, Failure, StageRecord, PlacementPlan):
    BY_TYPE[part] = records(part)
    BY_TYPE[tuple[part, ...]] = st.lists(BY_TYPE[part], max_size=3).map(tuple)


def over_msgpack(wire):
    return msgpack.unpackb(msgpack.packb(wire), strict_map_key=False)


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_events(kind, data):
    event = data.draw(records(kind))
    assert decode_event(over_msgpack(encode(event))) == event


@pytest.mark.parametrize("kind", get_args(Command), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_commands(kind, data):
    command = data.draw(records(kind))
    assert decode_command(over_msgpack(encode(command))) == command


def test_an_event_is_no_command():
    with pytest.raises(KeyError):
        decode_command({"type": "Tick"})
