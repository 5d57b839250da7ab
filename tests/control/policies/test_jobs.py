from elastic_dit.control.policies.jobs import survey
from elastic_dit.request import Stage
from tests.control.policies.test_deadlines import job
from tests.control.policies.worlds import arrival, world


def test_dop_by_efficiency() -> None:
    found = job(8, None)
    found.step_s.update({1: 8.0, 2: 4.5, 4: 3.0})  # efficiencies 1, 0.89, 0.67
    assert [found.widest(least) for least in (1.0, 0.9, 0.85, 0.6)] == [1, 1, 2, 4]
    assert (found.gain_s(1), found.gain_s(2), found.gain_s(4)) == (35.0, 15.0, 0.0)
    assert (found.work_s, found.remaining_s(4)) == (80.0, 30.0)


def test_a_survey_is_bounded_and_sees_the_first_in_line_and_the_oldest() -> None:
    sizes = ["360p"] * 10 + ["144p"] * 40
    cluster = world((arrival(f"r{n}", 0.01 * n, size) for n, size in enumerate(sizes)), gpus=1)
    cluster.run(until_s=1.0)
    view = cluster.controller.view
    seen = {job.request_id: job for job in survey(view, most=5)}
    assert len(view.requests) == 50
    assert len(seen) <= 1 + 2 * 5 + 5
    oldest = next(r for r in view.requests.values() if r.phase.is_waiting)
    assert oldest.request_id in seen
    assert sum(job.group is not None for job in seen.values()) == len(list(view.running(Stage.DIT)))
