"""What a bundle's manifest says of where its policy comes from."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from grasp_control.config import TrainConfig
from grasp_control.manifest import Manifest, Training
from grasp_sim.contract import ActionScale

PACKAGES = ("empo2-grasp", "torch", "numpy", "mujoco", "robosuite", "faiss-cpu", "onnx")
ALGORITHM = "EMPO2, distilled on-policy"


def manifest_of(
    config: TrainConfig,
    run: Path,
    scale: ActionScale,
    *,
    env_steps: int | None = None,
) -> Manifest:
    """The manifest of a policy trained by `config` in the folder `run`, before its success was measured.

    Args:
        config: the run's settings.
        run: the run's folder; its name is the run's id.
        scale: what an action of 1 means in the training environment.
        env_steps: environment steps used, distillation included; the configuration's by default.
    """
    return Manifest(
        robot="ur5e",
        gripper="robotiq-2f85",
        control_mode=config.env.control_mode,
        task=config.env.name,
        action_scale=scale,
        context=config.context,
        training=Training(
            run_id=run.name,
            algorithm=ALGORITHM,
            seed=config.seed,
            env_steps=config.env_steps if env_steps is None else env_steps,
            demonstrations=config.demos.episodes,
            packages={name: version(name) for name in PACKAGES},
        ),
        success={},
    )
