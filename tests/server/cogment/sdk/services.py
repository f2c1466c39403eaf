"""Services of the Cogment SDK: python services.py agent|environment|endless|hooks PORT

Lines of JSON on stdout tell what happened to them.
"""

import json
import sys
from typing import Any

import cog_settings
import cogment
import trials_pb2

GOAL = 3
"""Among the labels of a maze."""
STEPS = 25
"""Of a trial that was changed by the hook here."""
LAST_TICK = 5
"""Of a trial in the environment here."""


def tell(**what: object) -> None:
    """Print a line that the test reads."""
    print(json.dumps(what), flush=True)


def action(**values: list[float]) -> Any:
    """An Action of these numbers; one number stands for itself, several for a vector."""
    message = trials_pb2.Action()
    for name, value in values.items():
        tensor = message.actions[name]
        tensor.floats.array.extend(value)
        tensor.shape.extend([len(value)] if len(value) > 1 else [])
    return message


def steer(labels: bytes, width: int) -> Any:
    """Towards the goal in a picture; around, if there is none."""
    columns = [place % width for place, label in enumerate(labels) if label == GOAL]
    if not columns:
        return action(turn=[1.0], move=[0.3, 0.0])
    to_the_right = (sum(columns) / len(columns) + 0.5) / width - 0.5
    return action(turn=[max(-1.0, min(1.0, -4 * to_the_right))], move=[1.0, 0.0])


class Seeker(cogment.Agent):
    """Goes where it sees a goal. Thanks the player in its first tick, and answers messages."""

    VERSIONS = {"seeker": "1.2.3"}  # noqa: RUF012  # as the SDK has it
    actor_class = cog_settings.actor_classes.agent

    def decide(self, observation: Any) -> Any:
        """Steer by the picture."""
        picture = observation.observations["eye.segmentation"]
        chosen = steer(picture.uint8s.array, picture.shape[1])
        if self.trial.tick_id == 0:
            player = self.trial.actors.player[0]
            player.add_feedback(value=0.5, confidence=1.0)
            player.send_message(user_data=chosen)
        return chosen

    def reward(self, reward: Any) -> None:
        """Tell."""
        if reward.confidence:
            tell(actor=self.actor_id, reward=reward.value, feedbacks=len(reward.feedbacks))

    def on_message(self, sender: int, data: Any) -> None:
        """Tell, and send it back."""
        tell(actor=self.actor_id, message_from=sender, text=str(list(data.actions)))
        self.trial.actors.all[sender].send_message(user_data=data)

    def end(self) -> None:
        """Tell."""
        tell(actor=self.actor_id, ended=self.trial.id)


class Counter(cogment.Environment):
    """Adds up what its actors do, and shows the sum to all of them; the trial ends by itself."""

    VERSIONS = {"counter": "4.5.6"}  # noqa: RUF012

    def start(self, config: Any) -> Any:
        """The first observations."""
        tell(started=self.trial.id, settings=sorted(config.world_settings) if config else None)
        self.total = 0.0
        return self._show()

    def update(self, actions: Any) -> Any:
        """The next."""
        moves = [one.actions["turn"].floats.array[0] for one in actions.all_actions()]
        self.total += sum(moves)
        for actor, move in zip(self.trial.actors.all, moves):  # noqa: B905
            actor.add_feedback(value=move, confidence=1.0)
        self.trial.actors.player[0].send_message(user_data=action(turn=[self.total]))
        self.end_trial = self.trial.tick_id + 1 == LAST_TICK
        return self._show()

    def on_message(self, sender: int, data: Any) -> None:
        """Tell."""
        tell(message_from=sender, text=str(list(data.actions)))

    def end(self) -> None:
        """Tell."""
        tell(ended=self.trial.id)

    def _show(self) -> Any:
        seen = trials_pb2.Observation()
        seen.observations["total"].floats.array.append(self.total)
        picture = seen.observations["eye.segmentation"]
        picture.uint8s.array = bytes([0, 0, 0, GOAL])
        picture.shape.extend([1, 4])
        table = self.trial.new_observation_table()
        for one in table.all_observations():
            one.show(seen)
        return table


class Endless(Counter):
    """The same, for trials that go on."""

    def update(self, actions: Any) -> Any:
        """The next."""
        table = super().update(actions)
        self.end_trial = False
        return table


class Shortener(cogment.TrialHooks):
    """Makes every trial STEPS ticks long."""

    VERSIONS = {"shortener": "7.8.9"}  # noqa: RUF012

    def pre_trial(self, trial_id: str, user_id: str, params: Any) -> Any:
        """Change the parameters."""
        tell(pre_trial=trial_id, user=user_id, actors=[one.actor_class for one in params.actors])
        params.max_steps = STEPS
        return params


if __name__ == "__main__":
    kind = {"agent": Seeker, "environment": Counter, "endless": Endless, "hooks": Shortener}[sys.argv[1]]
    cogment.GrpcServer(kind, cog_settings, int(sys.argv[2])).serve()
