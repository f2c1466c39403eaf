"""Layout of the memory that a server shares with a client: what both sides have to know of it.

It begins with a header: the token by which clients check that it is the server's, and the client's choice of the set of
frames that the next step is drawn into. The sets follow.
"""

HEADER_BYTES = 4096
"""Bytes in front of the first set of frames."""
CHOICE_OFFSET = 64
"""Offset of an int64 that the client may write: 1 + the ring index of the set of frames that its next steps are drawn
into. With 0, as at first, or with anything that is not the number of a set, steps are drawn into the sets in turn."""
