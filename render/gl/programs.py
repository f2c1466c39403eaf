"""Shaders: files of `render/shaders`, with `#include "name"` replaced by that file."""

import re
from pathlib import Path

import moderngl

FOLDER = Path(__file__).parent.parent / "shaders"
_INCLUDE = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)


def source(name: str) -> str:
    """The text of a shader with everything it includes."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda match: source(match[1]), text)


def compile_program(context: moderngl.Context, vertex: str, fragment: str) -> moderngl.Program:
    """A program from two shader files."""
    return context.program(vertex_shader=source(vertex), fragment_shader=source(fragment))
