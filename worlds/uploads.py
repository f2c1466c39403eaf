"""Rules for models that clients upload as settings: whether this process takes them, how large, and how it treats them.

A server sets the rules when it starts. In any other process uploads come from the process itself: they are taken, and
treated like its own files.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from worldloom.worlds.settings import SettingNotAllowedError

UPLOADS = ("xml", "files")
"""Settings with which a client uploads something, in all families that have them."""
_DECOMPRESSED = 4
"""Most decompressed bytes for each byte that an upload may have."""
_UNLIMITED = 1 << 31


@dataclass(frozen=True)
class UploadRules:
    """Rules of one process for uploads."""

    is_allowed: bool = True
    is_isolated: bool = False
    """Compile them in a process of its own, whose memory and time are limited."""
    max_bytes: int = _UNLIMITED
    """Bytes of an upload as it is sent."""
    timeout_s: float = 60.0
    """Seconds to compile an upload in."""
    max_asset_bytes: int = _UNLIMITED
    """Bytes of meshes and textures in all from which on no more uploads are taken: they stay until the server ends."""

    @property
    def max_decompressed_bytes(self) -> int:
        """Bytes of all files of an upload together."""
        return _DECOMPRESSED * self.max_bytes

    def check_allowed(self, setting: str) -> None:
        """Raise SettingNotAllowedError unless this process takes uploads."""
        if not self.is_allowed:
            raise SettingNotAllowedError(
                f"setting {setting!r} is given, and this server takes no uploaded models: start it with "
                "--allow-uploads, or use a model of its own (setting 'model')"
            )


def upload_bytes(settings: Mapping[str, object]) -> int:
    """Return the size of the upload in the settings of a world; 0 if there is none."""
    found = (settings.get(name) for name in UPLOADS)
    return sum(len(value) for value in found if isinstance(value, str | bytes))


running_compilers: set["subprocess.Popen[bytes]"] = set()
"""Processes that compile uploads at this moment."""


def end_compilers() -> None:
    """End the processes that compile uploads: what waits for them fails at once."""
    for process in list(running_compilers):
        process.kill()


_rules = UploadRules()


def upload_rules() -> UploadRules:
    """Return the rules of this process."""
    return _rules


def set_upload_rules(rules: UploadRules) -> None:
    """Replace the rules of this process."""
    global _rules
    _rules = rules
