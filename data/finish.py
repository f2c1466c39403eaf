"""The end of a collection: the card, a contact sheet, a film, and the last entry of the index."""

from pathlib import Path

from worldloom.data.collection import STATE_FILES
from worldloom.data.index import EndEntry, Index, append_entry
from worldloom.data.layout import Description


def finish_dataset(directory: Path, description: Description, index: Index) -> None:
    """Write what belongs to a complete dataset, and end its index."""
    for path in directory.glob(STATE_FILES):
        path.unlink()
    append_entry(directory, EndEntry(index.rows, index.episodes, index.return_sum, index.length_sum, files=[]))
