"""The test scenes: small stages with a look of their own, each hard on a renderer in its own way.

`SCENES` has them by name, as functions of the frame's size, the samples and the outputs: tests may shrink them.
"""

from tests.support import scenes_daylight, scenes_lamps, scenes_translucent
from tests.support.scene_builder import SCENES

__all__ = ["SCENES", "scenes_daylight", "scenes_lamps", "scenes_translucent"]
