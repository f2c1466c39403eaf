"""Pieces of protobuf's wire form, for messages that are put together by hand."""


def varint(number: int) -> bytes:
    """An integer that is not negative."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def varint_tag(number: int) -> bytes:
    """What comes before a field that is an integer."""
    return varint(number << 3)


def field(number: int, size_bytes: int) -> bytes:
    """What comes before a field of so many bytes."""
    return varint(number << 3 | 2) + varint(size_bytes)
