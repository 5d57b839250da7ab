"""Ask a running cluster for three clips at once and save them as they come.

Start a cluster first, each in a terminal of its own::

    dask scheduler
    elastic-dit-worker tcp://127.0.0.1:8786 --virtual-gpus 3

then::

    python examples/client.py tcp://127.0.0.1:8786
"""

from __future__ import annotations

import sys

from distributed import as_completed

from elastic_dit import Client
from elastic_dit.errors import GenerationFailed

PROMPTS = [
    "a red circle moving left on a black background",
    "a yellow star growing on a gray background",
    "a blue heart standing still on a white background",
]


def main(scheduler: str) -> None:
    with Client(scheduler) as client:
        # What is not given takes the model's defaults; a wrong value is refused here, at once.
        futures = client.map(PROMPTS, num_frames=9, seed=7)

        for future in as_completed(futures):
            try:
                video = future.result()
            except GenerationFailed as error:
                print(error)
                continue
            path = video.save(f"{video.request.request_id}.mp4")
            seconds = {str(record.stage): round(record.seconds, 2) for record in video.records}
            print(f"{path}: {video.request.prompt}, {seconds}")


if __name__ == "__main__":
    main(*sys.argv[1:])
