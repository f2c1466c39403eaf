"""The end of a collection: the card, a contact sheet, a film, and the last entry of the index."""

from collections.abc import Sequence
from pathlib import Path

from worldloom.data.card import make_card
from worldloom.data.collection import STATE_FILES
from worldloom.data.errors import DatasetError
from worldloom.data.files import StoredFile, checksum_of_file, remove, replace_file
from worldloom.data.index import EndEntry, Index, append_entry, read_index
from worldloom.data.layout import CARD_FILE, DESCRIPTION_FILE, FILM_FILE, SHEET_FILE, Description
from worldloom.data.sheets import find_frames, make_dataset_film, make_dataset_sheet
from worldloom.data.whole import WholeDataset


def finish_dataset(
    directory: Path, description: Description, index: Index, part_indexes: Sequence[Index] | None = None
) -> None:
    """Write what belongs to a complete dataset, and end its index. May be stopped at any moment, and called again.

    All its shards must be complete, or all its parts, which are datasets of their own. The indexes of parts are read
    unless they are given, as they have to be for parts on other machines; then there are no pictures.
    """
    places = [directory / place.path for place in description.parts]
    indexes = [index]
    if places:
        indexes = [_read_part(place) for place in places] if part_indexes is None else list(part_indexes)
    end = EndEntry(
        rows=sum(one.rows for one in indexes),
        episodes=sum(one.episodes for one in indexes),
        return_sum=sum((one.return_sum for one in indexes), 0.0),
        length_sum=sum(one.length_sum for one in indexes),
        files=[StoredFile(DESCRIPTION_FILE, *checksum_of_file(directory / DESCRIPTION_FILE))],
    )
    for path in directory.glob(STATE_FILES):
        path.unlink()
    column = find_frames(description) if all(place.exists() for place in places) else None
    if column is not None:
        rows = WholeDataset(directory)
        end.files.append(
            replace_file(directory / SHEET_FILE, make_dataset_sheet(rows, description, column, rows.steps))
        )
        end.files.append(replace_file(directory / FILM_FILE, make_dataset_film(rows, description, column, rows.steps)))
    else:
        remove(directory / SHEET_FILE)
        remove(directory / FILM_FILE)
    size_bytes = sum(one.size_bytes for one in indexes)
    card = make_card(description, end, size_bytes, column is not None)
    end.files.append(replace_file(directory / CARD_FILE, card))
    append_entry(directory, end)


def _read_part(directory: Path) -> Index:
    index = read_index(directory)
    if index.end is None:
        raise DatasetError(f"the part {directory} is not here or incomplete: expected its collection to have ended")
    return index
