"""Ends of episodes in `info`: statistics of episodes, and the last observations of those that ended.

The names are Gymnasium's: `episode` as its wrapper RecordEpisodeStatistics writes it, `final_obs` and `final_info` as
its vector environments do in the mode SAME_STEP, each beside a mask with a leading underscore.
"""

import time
from typing import Any

import numpy as np

from worldloom.client.results import LaneResults

FINAL_LANES = "_final_lanes"
"""Key of `info`: indices of the lanes whose episode ended. Gymnasium's wrappers leave keys with an underscore alone; in
others they expect an element for each lane."""
FINAL_STACKED = "_final_stacked"
"""Key of `info`: the observations of `final_obs` as one array, or a dict of arrays: a row for each of these lanes."""


class EpisodeStatistics:
    """Return, length and time of the episode under way in each lane."""

    def __init__(self, lanes: int) -> None:
        self._returns = np.zeros(lanes)
        self._lengths = np.zeros(lanes, np.int64)
        self._began_at_s = np.zeros(lanes)

    def begin(self, lanes: np.ndarray | slice) -> None:
        """Begin episodes in some lanes, given by a mask, indices or a slice."""
        self._returns[lanes] = 0.0
        self._lengths[lanes] = 0
        self._began_at_s[lanes] = time.perf_counter()

    def record(self, results: LaneResults) -> dict[str, np.ndarray] | None:
        """Add a step; return the statistics of the episodes that ended with it, 0 for other lanes; None if none did."""
        lanes = results.lanes
        has_stepped = ~results.is_first if results.is_held is None else ~(results.is_first | results.is_held)
        if results.is_first.any():
            self.begin(lanes[results.is_first])
        self._returns[lanes] += np.where(has_stepped, results.reward, 0.0)
        self._lengths[lanes] += has_stepped
        ended = results.has_ended
        if not ended.any():
            return None
        took_s = np.round(time.perf_counter() - self._began_at_s[lanes], 6)
        found = {
            "r": np.where(ended, self._returns[lanes], 0.0),
            "l": np.where(ended, self._lengths[lanes], 0),
            "t": np.where(ended, took_s, 0.0),
        }
        self.begin(lanes[ended])
        return found


def build_info(results: LaneResults, statistics: EpisodeStatistics | None, flat_name: str | None) -> dict[str, Any]:
    """Return the info of a step: empty unless episodes ended. `flat_name` is the observation of a flat env.

    With several servers, `lost` is a mask of the lanes whose server was lost.
    """
    info: dict[str, Any] = {} if results.is_lost is None else {"lost": results.is_lost}
    episode = None if statistics is None else statistics.record(results)
    if episode is not None:
        info["episode"], info["_episode"] = episode, results.has_ended
    if not len(results.final_rows):
        return info
    stacked = results.final if flat_name is None else results.final[flat_name]
    final_obs = np.full(len(results.lanes), None)
    for row, lane in enumerate(results.final_rows.tolist()):
        if flat_name is None:
            final_obs[lane] = {name: array[row, ...] for name, array in results.final.items()}
        else:
            final_obs[lane] = results.final[flat_name][row, ...]
    has_final = np.zeros(len(results.lanes), bool)
    has_final[results.final_rows] = True
    info["final_obs"], info["_final_obs"] = final_obs, has_final
    info["final_info"], info["_final_info"] = {}, has_final.copy()
    if episode is not None:  # with a mask of each number, as Gymnasium merges the infos of single envs
        masks = {f"_{name}": results.has_ended.copy() for name in episode}
        info["final_info"] = {"episode": {**episode, **masks}, "_episode": results.has_ended.copy()}
    info[FINAL_LANES], info[FINAL_STACKED] = results.final_rows, stacked
    return info
