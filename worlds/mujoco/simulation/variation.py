"""Physical parameters that vary: masses, friction, damping and the gains of actuators, as model bytes of a lane."""

import copy
from collections.abc import Mapping

import mujoco
import numpy as np

from worldloom.kernels.tables import F64, U8
from worldloom.worlds.mujoco.simulation.data import ModelOverrides, copy_model_arrays, differing_arrays

_ARRAYS = {
    "masses": ("body_mass", "body_inertia"),
    "friction": ("geom_friction",),
    "damping": ("dof_damping",),
    "gains": ("actuator_gainprm", "actuator_biasprm"),
}
"""Arrays of a model that have an element or a row for each number of a variation."""
_LINEAR_GAINS = (mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtGain.mjGAIN_AFFINE)


def physical_counts(model: mujoco.MjModel) -> dict[str, int]:
    """Return what can vary in a model, and the count of its numbers: one for each body, geom, axis or actuator."""
    return {"masses": model.nbody, "friction": model.ngeom, "damping": model.nv, "gains": model.nu}


class PhysicsVariation:
    """Variations of one model by these amounts; 1 is from half to double.

    What MuJoCo derives from a model's parameters, such as masses of subtrees, is computed anew (`mj_setConst`).
    """

    def __init__(self, model: mujoco.MjModel, amounts: Mapping[str, float]) -> None:
        self._amounts = {name: amount for name, amount in amounts.items() if amount > 0}
        self._counts = physical_counts(model)
        self._model = copy.copy(model)
        self._data = mujoco.MjData(self._model)
        self._sources = [name for what in self._amounts for name in _ARRAYS[what]]
        before = copy_model_arrays(model)
        self._set(before, {what: _probes(self._counts[what]) for what in self._amounts})
        self.names = differing_arrays(before, copy_model_arrays(self._model)) | set(self._sources)
        """Names of the arrays that differ between lanes."""

    @property
    def length(self) -> int:
        """Number of the numbers that are drawn for a lane."""
        return sum(self._counts[what] for what in self._amounts)

    def vary(self, overrides: ModelOverrides, current: U8, base: U8, numbers: F64) -> U8:
        """Return a lane's bytes: `current`, with what varies as in `base` times a factor for each number in 0..1."""
        overrides.write(base, self._model)
        values = {name: getattr(self._model, name).copy() for name in self._sources}
        overrides.write(current, self._model)
        factors, first = {}, 0
        for what, amount in self._amounts.items():
            end = first + self._counts[what]
            factors[what], first = 2.0 ** (amount * (2.0 * numbers[first:end] - 1.0)), end
        self._set(values, factors)
        return overrides.read(self._model)

    def _set(self, values: Mapping[str, np.ndarray], factors: Mapping[str, F64]) -> None:
        """Write these values, times a factor for each row, into the model."""
        model = self._model
        for what, factor in factors.items():
            if what == "friction":
                model.geom_friction[:, 0] = values["geom_friction"][:, 0] * factor  # sliding
            elif what == "gains":
                is_linear = np.isin(model.actuator_gaintype, _LINEAR_GAINS)
                scale = np.where(is_linear, factor, 1.0)[:, None]
                model.actuator_gainprm[:] = values["actuator_gainprm"] * scale
                model.actuator_biasprm[:] = values["actuator_biasprm"] * scale
            else:
                for name in _ARRAYS[what]:
                    array = getattr(model, name)
                    array[:] = values[name] * factor.reshape(-1, *(1,) * (array.ndim - 1))
        mujoco.mj_setConst(model, self._data)


def _probes(count: int) -> F64:
    """Return factors with which everything changes that depends on what varies.

    No two are the same: with a common factor all centres of mass would stay.
    """
    return np.asarray(1.5 + np.arange(count) / (count + 1))
