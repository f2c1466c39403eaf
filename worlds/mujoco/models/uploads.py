"""Models that clients upload as settings: the text of the model, and an archive of the files that it refers to.

They are read like models on disk, except that all their files come from the archive.
"""

import mujoco

from worldloom.worlds.mujoco.models.archive import MAX_FILES, MODEL, UploadedFiles, read_archive
from worldloom.worlds.mujoco.models.files import compile_model
from worldloom.worlds.mujoco.models.reader import ModelReader
from worldloom.worlds.settings import SettingError
from worldloom.worlds.uploads import upload_rules


def load_uploaded_model(xml: str, archive: bytes) -> mujoco.MjModel:
    """Return an uploaded model; raise SettingError if it is not allowed or cannot be loaded."""
    rules = upload_rules()
    rules.check_allowed("xml")
    try:
        files = UploadedFiles(xml, read_archive(archive, rules.max_decompressed_bytes))
        reader = ModelReader(
            files,
            MAX_FILES,
            rules.max_decompressed_bytes,
            roots=("mujoco", "robot"),
            refused_tags=frozenset({"plugin", "extension"}),
        )
        return compile_model(reader.read_model(MODEL), reader.files)
    except ValueError as error:
        raise SettingError(f"the model in the setting 'xml' cannot be loaded: {error}") from None
