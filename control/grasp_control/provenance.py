"""What a bundle's manifest says of where its policy comes from."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from grasp_control.config import TrainConfig
from grasp_control.manifest import Manifest, Training
from grasp_sim.contract import ActionScale

PACKAGES = ("empo2-grasp", "torch", "numpy", "mujoco", "robosuite", "faiss-cpu", "onnx")
ALGORITHM = "EMPO2, distilled on-policy"


def training_of(config: TrainConfig, run_id: str, *, env_steps: int | None = None) -> Training:
    """The record of a run, before the network's success on its task was measured.

    Args:
        config: the run's settings.
        run_id: the name of the run's folder.
        env_steps: environment steps used, distillation included; the configuration's by default.
    """
    return Training(
        run_id=run_id,
        algorithm=ALGORITHM,
        seed=config.seed,
        env_steps=config.env_steps if env_steps is None else env_steps,
        demonstrations=config.demos.episodes,
        packages={name: version(name) for name in PACKAGES},
        task=config.env.name,
        control_mode=config.env.control_mode,
        context=config.context,
    )


def manifest_of(
    training: Sequence[Training], *, control_mode: str, scale: ActionScale, context: int
) -> Manifest:
    """The manifest of a network made of the policies of `training`, before its success was measured.

    Args:
        training: the runs, one or more.
        control_mode: of the network's actions.
        scale: what an action of 1 means in that mode.
        context: pairs in the network's window.
    """
    return Manifest(
        robot="ur5e",
        gripper="robotiq-2f85",
        control_mode=control_mode,
        task=", ".join(dict.fromkeys(one.task for one in training)),
        action_scale=scale,
        context=context,
        training=tuple(training),
        success={},
    )
