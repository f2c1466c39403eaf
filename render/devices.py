"""Graphics devices of this machine, found without drawing anything, and what is missing if there are none.

EGL lists devices and which of them are software. Their names come from their drivers, which are loaded in a process of
their own: a broken driver may crash the process that loads it.
"""

import ctypes
import ctypes.util
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

EGL_LIBRARY = "libEGL.so.1"
GL_LIBRARY = "libGL.so.1"
INSTALL_COMMAND = "sudo apt-get install -y libegl1 libgl1 libgl1-mesa-dri libegl-mesa0"
PROBE_TIMEOUT_S = 60.0

_EGL_EXTENSIONS, _EGL_DRM_DEVICE_FILE = 0x3055, 0x3233
_SOFTWARE_EXTENSION = "EGL_MESA_device_software"
_SOFTWARE_NAMES = ("llvmpipe", "softpipe", "swrast", "swiftshader", "software rasterizer")
_VENDOR_FOLDERS = ("/usr/share/glvnd/egl_vendor.d", "/etc/glvnd/egl_vendor.d")
_MAX_DEVICES = 64

_PROBE = """
import json, sys
from worldloom.render.gl.context import GLContext
context = GLContext(int(sys.argv[1]))
print(json.dumps(context.device))
"""


@dataclass(frozen=True)
class Device:
    """One EGL device."""

    index: int
    is_software: bool
    file: str | None
    """Device file of a card, such as /dev/dri/card0."""
    name: str | None = None
    """Name that its driver reports, after `probe`."""
    problem: str | None = None
    """Why its driver cannot be used, after `probe`."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict, for JSON."""
        return asdict(self)


def list_devices() -> list[Device]:
    """Return the devices that EGL lists, by number; empty where EGL is missing or has no drivers."""
    egl = _load(EGL_LIBRARY)
    if egl is None:
        return []
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    egl.eglGetProcAddress.argtypes = [ctypes.c_char_p]
    query_devices = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    query_string = egl.eglGetProcAddress(b"eglQueryDeviceStringEXT")
    if not query_devices or not query_string:
        return []
    handles = (ctypes.c_void_p * _MAX_DEVICES)()
    count = ctypes.c_int()
    pointer = ctypes.POINTER(ctypes.c_void_p)
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, pointer, ctypes.POINTER(ctypes.c_int))(query_devices)
    string_of = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)(query_string)
    if not query(_MAX_DEVICES, handles, ctypes.byref(count)):
        return []
    devices = []
    for index, handle in enumerate(handles[: count.value]):
        extensions = (string_of(handle, _EGL_EXTENSIONS) or b"").decode().split()
        file = string_of(handle, _EGL_DRM_DEVICE_FILE) if "EGL_EXT_device_drm" in extensions else None
        devices.append(Device(index, _SOFTWARE_EXTENSION in extensions, file.decode() if file else None))
    return devices


def probe(device: Device, timeout_s: float = PROBE_TIMEOUT_S) -> Device:
    """Return a device with its driver's name, or its problem, by creating a renderer's context in a new process."""
    command = [sys.executable, "-c", _PROBE, str(device.index)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return _with(device, problem=f"its driver did not answer within {timeout_s:.0f} s")
    if done.returncode < 0:
        return _with(device, problem=f"its driver crashed (signal {-done.returncode})")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return _with(
            device, problem=lines[-1].partition(": ")[2] or lines[-1] if lines else "its driver gave no reason"
        )
    name = str(json.loads(done.stdout.strip().splitlines()[-1]))
    return Device(device.index, device.is_software or is_software(name), device.file, name)


def is_software(name: str) -> bool:
    """Return whether a driver with this name draws on the CPU."""
    return any(known in name.lower() for known in _SOFTWARE_NAMES)


def missing_parts() -> list[str]:
    """Return what this machine lacks for OpenGL without a window; empty if nothing is known to be missing."""
    missing = []
    if _load(EGL_LIBRARY) is None:
        missing.append(f"{EGL_LIBRARY} (the EGL library: OpenGL without a window)")
    if _load(GL_LIBRARY) is None:
        missing.append(f"{GL_LIBRARY} (the OpenGL library)")
    if not any(list(Path(folder).glob("*.json")) for folder in _VENDOR_FOLDERS):
        missing.append("an EGL vendor (the file that names a driver to EGL)")
    elif not missing and not list_devices():
        missing.append("a driver for EGL")
    return missing


def explain_missing() -> str:
    """Return one or two sentences: what is missing, and the command that installs it on Debian and Ubuntu."""
    missing = missing_parts()
    if not missing:
        return "Nothing is known to be missing: `worldloom doctor` tries every device."
    return f"Missing: {'; '.join(missing)}. To install it: `{INSTALL_COMMAND}`."


def _with(device: Device, problem: str) -> Device:
    return Device(device.index, device.is_software, device.file, None, problem)


def _load(library: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(library)
    except OSError:
        return None
