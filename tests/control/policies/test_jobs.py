from elastic_dit.control.policies.jobs import Job, JobBook
from elastic_dit.request import Stage
from tests.control.policies.test_deadlines import job
from tests.control.policies.worlds import arrival, world


def test_dop_by_efficiency() -> None:
    found = job(8, None)
    found.step_s.update({1: 8.0, 2: 4.5, 4: 3.0})  # efficiencies 1, 0.89, 0.67
    assert [found.widest(least) for least in (1.0, 0.9, 0.85, 0.6)] == [1, 1, 2, 4]
    assert (found.gain_s(1), found.gain_s(2), found.gain_s(4)) == (35.0, 15.0, 0.0)
    assert (found.work_s, found.remaining_s(4)) == (80.0, 30.0)


def test_a_job_is_remembered_and_times_that_are_observed_are_asked_for_anew() -> None:
    cluster = world([arrival("r", 0.0)], gpus=1)
    cluster.run(until_s=1.0)
    view = cluster.controller.view
    book = JobBook()
    book.begin(view, 1.0)
    record = view.requests["r"]
    found = book.job(record, view)
    before = found.times
    book.begin(view, 2.5)
    assert book.job(record, view) is found
    assert found.times is before
    cluster.controller.allowed.learns = True
    book.begin(view, 1.5)
    assert book.job(record, view) is found
    assert found.times is before
    book.begin(view, 2.5)
    assert book.job(record, view) is found
    assert found.times is not before


def test_jobs_of_requests_that_ended_are_forgotten() -> None:
    cluster = world([arrival("r", 0.0), arrival("s", 0.0)], gpus=1)
    cluster.run(until_s=1.0)
    view, book = cluster.controller.view, JobBook()
    records = tuple(view.requests.values())
    jobs = [book.job(record, view) for record in records]
    book.begin(view, 1.0)
    assert [book.job(record, view) for record in records] == jobs
    cluster.run()
    assert not view.requests
    book.begin(view, 1.0)
    assert repr(book).startswith("<JobBook of 0 jobs")


def test_who_waits_for_a_retry_is_not_in_line() -> None:
    cluster = world([arrival("r", 0.0)], gpus=1)
    cluster.run(until_s=1.0)
    table, record = cluster.controller.table, cluster.controller.table.live["r"]
    found = Job(record, cluster.controller.view)
    assert not found.waits
    table.wait_for(record, Stage.DIT, 1.0, after_s=5.0)
    assert not found.waits
    assert table.end_holds(6.0)
    assert found.waits
