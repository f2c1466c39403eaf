"""States as arrays of torch and JAX: the same frames, read without a copy."""

import numpy as np
import pytest
import torch

from worldloom import BadAction, MujocoRenderer
from worldloom.client.state_arrays import as_array

ARM = """<mujoco><worldbody><camera name="side" pos="0 -3 1" xyaxes="1 0 0 0 0 1"/>
<body pos="0 0 1"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .8 0 0" size=".1"/></body>
</worldbody></mujoco>"""


def test_torch() -> None:
    import torch

    qpos = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None]
    assert as_array("qpos", qpos).ctypes.data == qpos.data_ptr()
    with MujocoRenderer(model=ARM) as draw:
        expected = draw(qpos.numpy())["side.rgb"]
        np.testing.assert_array_equal(draw(qpos)["side.rgb"], expected)
        np.testing.assert_array_equal(draw(qpos.clone().requires_grad_())["side.rgb"], expected)
        frames = torch.from_numpy(draw(qpos[:8])["side.rgb"])
        assert frames.shape == (8, 64, 64, 3)


def test_jax() -> None:
    import jax

    qpos = jax.numpy.linspace(-3, 3, 40)[:, None]
    assert as_array("qpos", qpos).ctypes.data == qpos.unsafe_buffer_pointer()
    with MujocoRenderer(model=ARM) as draw:
        np.testing.assert_array_equal(draw(qpos)["side.rgb"], draw(np.asarray(qpos))["side.rgb"])
        parts = draw.stream(qpos, batch_size=15)
        assert [len(part["side.rgb"]) for part in parts] == [15, 15, 10]


def test_torch_tensors_whose_memory_is_negated() -> None:
    qpos = torch.linspace(-1, 1, 27, dtype=torch.float64).reshape(3, 9)
    negated = torch.complex(qpos, -qpos).conj().imag
    assert negated.is_neg()
    with MujocoRenderer(model="walker/walk", width=8, height=8) as draw:
        np.testing.assert_array_equal(draw(negated)["side.rgb"], draw(qpos)["side.rgb"])
        with pytest.raises(BadAction, match=r"a dtype that NumPy has; convert it first.*\.float\(\)"):
            draw(qpos.bfloat16())
