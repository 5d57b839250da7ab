from __future__ import annotations

import logging

import pytest
from distributed import Scheduler, Status
from distributed.utils_test import gen_test

from elastic_dit.cluster.launch.nanny import SteadyNanny

pytestmark = pytest.mark.cluster


class Complaints(logging.Handler):
    """Keeps what is logged as a warning or an error."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.records = []

    def emit(self, record):
        self.records.append(record)


@gen_test(timeout=90)
async def test_a_worker_told_to_close_while_its_nanny_closes_ends_by_itself():
    complaints, log = Complaints(), logging.getLogger("distributed.nanny")
    log.addHandler(complaints)
    try:
        async with Scheduler(
            host="127.0.0.1", port=0, dashboard=False, dashboard_address=":0"
        ) as scheduler:
            nanny = await SteadyNanny(
                scheduler.address, nthreads=1, host="127.0.0.1", memory_limit=0, dashboard=False
            )
            scheduler.close_worker(nanny.worker_address)
            await nanny.close(timeout=60)
            assert nanny.status is Status.closed
            assert nanny.process is None
    finally:
        log.removeHandler(complaints)
    assert not [record.getMessage() for record in complaints.records]
