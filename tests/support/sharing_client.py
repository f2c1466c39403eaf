"""A client that is about to be killed, or to see its server killed: it has shared memory and looks at it.

    python -m tests.support.sharing_client ADDRESS FAMILY LANES

It joins a world of its own, asks for a picture in shared memory and in the reply, and says so. For each line that comes
in it says whether the picture is still what it was.
"""

import sys

from scripts.support.shared_memory import MappedSegment
from scripts.support.stream_client import StreamClient


def main(address: str, family: str, lanes: int) -> None:
    wire = StreamClient(address)
    world = wire.create(family, **({"lanes": lanes} if lanes else {}))
    wire.join(world, shm=True, max_reply_bytes=1 << 30)
    mapped = MappedSegment(wire.property)
    seen = wire.step("eye.rgb", "eye.rgb@shm").observations
    picture = mapped.frames(seen["eye.rgb@shm"], seen["eye.rgb"])
    print("shared", flush=True)
    for _ in sys.stdin:
        print("the same" if picture.tobytes() == seen["eye.rgb"].tobytes() else "another", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
