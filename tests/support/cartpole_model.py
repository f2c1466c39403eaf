"""Cartpole in plain Python, one world at a time: a model that the family is compared with.

The equations of motion are derived independently. With q = (x, angle) the kinetic energy is q' M(angle) q' / 2, where
M holds the masses as seen by the cart, by the pole's rotation, and by both. Lagrange's equations then say M q'' = f, a
2 x 2 linear system that is built from numbers and solved by Cramer's rule, at every stage of the integrator.

Two integrators: the same fourth-order Runge-Kutta, written over vectors, for long runs; and the midpoint rule,
which needs far smaller steps, to check the equations without it.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

from scripts.support.splitmix import mix, uniform

Motion: TypeAlias = tuple[float, float, float, float]
"""x, angle, and their derivatives."""

CART, POLE, LENGTH, GRAVITY, PUSH = 1.0, 0.1, 1.0, 9.81, 10.0


def masses(angle: float) -> tuple[float, float, float]:
    """Return M: its diagonal, for the cart and for the angle, and its off-diagonal element."""
    to_middle = LENGTH / 2
    inertia_at_pivot = POLE * LENGTH**2 / 12 + POLE * to_middle**2
    return CART + POLE, inertia_at_pivot, POLE * to_middle * math.cos(angle)


def energy(motion: Motion) -> float:
    _, angle, speed, spin = motion
    cart, pole, both = masses(angle)
    moving = (cart * speed**2 + 2 * both * speed * spin + pole * spin**2) / 2
    return moving + POLE * GRAVITY * LENGTH / 2 * math.cos(angle)


def momentum(motion: Motion) -> float:
    """Return the momentum along the rail, which only the push changes."""
    cart, _, both = masses(motion[1])
    return cart * motion[2] + both * motion[3]


def flow(motion: Motion, newtons: float) -> Motion:
    """Return the derivatives of the four."""
    _, angle, speed, spin = motion
    cart, pole, both = masses(angle)
    on_cart = newtons + POLE * LENGTH / 2 * math.sin(angle) * spin**2
    on_pole = POLE * GRAVITY * LENGTH / 2 * math.sin(angle)
    determinant = cart * pole - both**2
    return speed, spin, (on_cart * pole - both * on_pole) / determinant, (cart * on_pole - both * on_cart) / determinant


def moved(motion: Motion, by: Motion, seconds: float) -> Motion:
    x, angle, speed, spin = (value + seconds * change for value, change in zip(motion, by, strict=True))
    return x, angle, speed, spin


def runge_kutta(motion: Motion, newtons: float, seconds: float) -> Motion:
    first = flow(motion, newtons)
    second = flow(moved(motion, first, seconds / 2), newtons)
    third = flow(moved(motion, second, seconds / 2), newtons)
    fourth = flow(moved(motion, third, seconds), newtons)
    x, angle, speed, spin = (
        (a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(first, second, third, fourth, strict=True)
    )
    return moved(motion, (x, angle, speed, spin), seconds)


def midpoint(motion: Motion, newtons: float, seconds: float) -> Motion:
    return moved(motion, flow(moved(motion, flow(motion, newtons), seconds / 2), newtons), seconds)


def travel(
    motion: Motion, newtons: float, seconds: float, steps: int, integrate: Callable[[Motion, float, float], Motion]
) -> Motion:
    """Return the motion after `steps` steps, which take `seconds` together."""
    for _ in range(steps):
        motion = integrate(motion, newtons, seconds / steps)
    return motion


class CartpoleModel:
    """One lane: its seed, its episodes, and the results of its steps."""

    def __init__(self, seed: int, rail: float, max_steps: int) -> None:
        self.seed, self.end, self.max_steps = seed, rail / 2, max_steps
        self.episode = 0
        self.running = False
        self.motion: Motion = (0.0, 0.0, 0.0, 0.0)

    def step(self, force: float) -> dict[str, object]:
        if not self.running:
            seed = mix(self.seed, self.episode)
            x, angle, speed, spin = (2 * uniform(seed, k) - 1 for k in range(4))
            self.motion = (0.2 * x, math.pi + 0.1 * angle, 0.05 * speed, 0.05 * spin)
            self.episode += 1
            self.steps, self.running = 0, True
            return self.results("FIRST", 0.0, 1.0)
        self.steps += 1
        hit = False
        for _ in range(2):
            self.motion = runge_kutta(self.motion, PUSH * force, 0.01)
            if abs(self.motion[0]) >= self.end:
                self.motion = (math.copysign(self.end, self.motion[0]), *self.motion[1:])
                hit = True
                break
        x, angle = self.motion[:2]
        reward = (1 + math.cos(angle)) / 2 * (1 - (x / self.end) ** 2 / 2) * (1 - force**2 / 5)
        self.running = not hit and self.steps < self.max_steps
        return self.results("MID" if self.running else "LAST", reward, 0.0 if hit else 1.0)

    def results(self, step_type: str, reward: float, discount: float) -> dict[str, object]:
        x, angle, speed, spin = self.motion
        return {
            "step_type": step_type,
            "reward": reward,
            "discount": discount,
            "pose": [x, math.cos(angle), math.sin(angle)],
            "velocity": [speed, spin],
        }
