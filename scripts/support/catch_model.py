"""Catch in plain Python, one world at a time: a model that the family is compared with."""

from scripts.support.splitmix import mix, uniform


class CatchModel:
    """One lane: its seed, its episodes, and what a step gives."""

    def __init__(self, seed: int, rows: int, columns: int, max_steps: int) -> None:
        self.seed, self.rows, self.columns, self.max_steps = seed, rows, columns, max_steps
        self.episode = 0
        self.running = False

    def step(self, move: int) -> dict[str, object]:
        """Advance by one step; return the observations."""
        if not self.running:
            self.ball_column = int(self.columns * uniform(mix(self.seed, self.episode), 0))
            self.ball_row, self.paddle, self.steps = 0, self.columns // 2, 0
            self.episode += 1
            self.running = True
            return self.observe("FIRST", 0.0, 1.0)
        self.steps += 1
        self.ball_row += 1
        if 0 <= self.paddle + move < self.columns:
            self.paddle += move
        if self.ball_row == self.rows - 1:
            self.running = False
            return self.observe("LAST", 1.0 if self.paddle == self.ball_column else -1.0, 0.0)
        if self.steps == self.max_steps:
            self.running = False
            return self.observe("LAST", 0.0, 1.0)
        return self.observe("MID", 0.0, 1.0)

    def observe(self, step_type: str, reward: float, discount: float) -> dict[str, object]:
        """Return the observations of a step."""
        return {
            "step_type": step_type,
            "reward": reward,
            "discount": discount,
            "ball": [self.ball_row, self.ball_column],
            "paddle": self.paddle,
        }
