"""Settings beyond what makes sense: one line naming the setting and its limit, before any work."""

from __future__ import annotations

import pytest

from grasp_control.bench.expert import ExpertBenchConfig
from grasp_control.bench.learning import LearningConfig
from grasp_control.bench.memory import MemoryBenchConfig
from grasp_control.bench.pictures import PicturesConfig
from grasp_control.bench.runs import RunsConfig
from grasp_control.bench.sim import SimBenchConfig
from grasp_control.bench.transfer import TransferConfig
from grasp_control.config import TrainConfig
from grasp_control.distill import DistillCommand
from grasp_control.evaluate import EvalConfig
from grasp_demos.record import RecordConfig
from grasp_demos.replay import ReplayConfig
from grasp_sim.cli import parse_config
from grasp_sim.errors import UserError

EVAL, DISTILL, REPLAY, RUNS = ["bundle=b"], ["teachers=[r]", "out=o"], ["path=p"], ["runs=[a]"]
TRANSFER = ["bundles=[b]"]


@pytest.mark.parametrize(
    ("command", "settings", "said"),
    [
        (
            TrainConfig,
            ["algo.hidden_width=1000000000000"],
            "algo.hidden_width=1000000000000 is more than 16384",
        ),
        (TrainConfig, ["algo.critics=257"], "algo.critics=257 is more than 256."),
        (TrainConfig, ["algo.neighbours=65"], "algo.neighbours=65 is more than 64."),
        (TrainConfig, ["algo.imitation_batch=1000001"], "algo.imitation_batch=1000001 is more than 1000000."),
        (TrainConfig, ["algo.symmetry_angle=3.2"], "algo.symmetry_angle=3.2 is more than 3.14"),
        (TrainConfig, ["algo.learning_rate=1e308"], "algo.learning_rate=1e+308 is more than 1."),
        (TrainConfig, ["algo.exploration_noise=1e308"], "algo.exploration_noise=1e+308 is more than 10."),
        (TrainConfig, ["env_steps=100000001"], "env_steps=100000001 is more than 100000000."),
        (TrainConfig, ["evaluation_episodes=1000001"], "evaluation_episodes=1000001 is more than 1000000."),
        (TrainConfig, ["distill.memory_rows=2000001"], "distill.memory_rows=2000001 is more than 2000000."),
        (TrainConfig, ["demos.noise=2"], "demos.noise=2.0 must lie between 0 and 1."),
        (TrainConfig, ["demos.episodes=-1"], "demos.episodes=-1 must be at least 0."),
        (
            TrainConfig,
            ["algo.precision=fp16"],
            "algo.precision=fp16 is not known. Did you mean 'bf16'? Choices: fp32, bf16.",
        ),
        (TrainConfig, ["algo.gate.structure=spars"], "Did you mean 'sparse'?"),
        (TrainConfig, ["algo.quiet_share=2"], "algo.quiet_share=2.0 must lie between 0 and 1."),
        (TrainConfig, ["memory.slip_repulsion=-1"], "memory.slip_repulsion must be finite and not negative"),
        (TrainConfig, ["demos.runs=[a]", "demos.paths=[b]", "demos.episodes=0"], "demos.paths=['b'] without"),
        (TrainConfig, ["demos.runs=[a,a]"], "demos.runs=['a', 'a'] names the same twice."),
        (TrainConfig, ["env.name=robosuite-lfit"], "Did you mean 'robosuite-lift'?"),
        (
            TrainConfig,
            ["env.control_mode=torque"],
            "env.control_mode=torque is not known. Choices: servo, osc.",
        ),
        (TrainConfig, ["env.reward=sprse"], "Did you mean 'sparse'?"),
        (EvalConfig, [*EVAL, "seed=-1"], "seed=-1 must be at least 0."),
        (EvalConfig, [*EVAL, "seeds=[3,-2]"], "seeds=[3, -2] must not be negative."),
        (EvalConfig, [*EVAL, "episodes=9223372036854775808"], "episodes=9223372036854775808 is more than"),
        (EvalConfig, ["bundle="], "bundle is empty: name a file or folder"),
        (DistillCommand, [*DISTILL, "distill.updates=100000001"], "distill.updates=100000001 is more than"),
        (DistillCommand, ["teachers=[r]", "out=''"], "out is empty"),
        (DistillCommand, [*DISTILL, "distill.force_expectile=1"], "distill.force_expectile=1.0 must lie"),
        (DistillCommand, [*DISTILL, "distill.size_noise=0.1"], "distill.size_noise=0.1 is more than"),
        (RecordConfig, ["out="], "out is empty"),
        (ReplayConfig, ["path=' '"], "path is empty"),
        (RunsConfig, [*RUNS, "out=."], "out='.' names no file"),
        (RunsConfig, [*RUNS, "out=runs/.."], "out='runs/..' names no file"),
        (RunsConfig, [*RUNS, "out="], "out is empty"),
        (MemoryBenchConfig, ["seed=-1"], "seed=-1 must be at least 0."),
        (MemoryBenchConfig, ["rows=3000000"], "rows=3000000 and retrieval_rows="),
        (MemoryBenchConfig, ["batch=1000000000000"], "batch=1000000000000 is more than 1000000."),
        (ExpertBenchConfig, ["environments=[]"], "environments is empty: name at least one."),
        (ExpertBenchConfig, ["horizon=0"], "horizon=0 must be at least 1."),
        (ExpertBenchConfig, ["out=runs/.."], "out='runs/..' names no file"),
        (LearningConfig, ["every=0"], "every=0 must be at least 1."),
        (LearningConfig, ["out=.."], "out='..' names no file"),
        (PicturesConfig, ["environments=[]"], "environments is empty: name at least one."),
        (PicturesConfig, ["seed=-1"], "seed=-1 must be at least 0."),
        (PicturesConfig, ["out="], "out is empty"),
        (SimBenchConfig, ["environments=[]"], "environments is empty: name at least one."),
        (SimBenchConfig, ["resets=-1"], "resets=-1 must be at least 0."),
        (SimBenchConfig, ["out="], "out is empty"),
        (TransferConfig, [*TRANSFER, "seed=-1"], "seed=-1 must be at least 0."),
        (TransferConfig, [*TRANSFER, "horizon=0"], "horizon=0 must be at least 1."),
        (TransferConfig, [*TRANSFER, "environments=[]"], "environments is empty: name at least one."),
        (TransferConfig, [*TRANSFER, "environments=[pybullet-lfit]"], "Did you mean 'pybullet-lift'?"),
        (TransferConfig, [*TRANSFER, "out=."], "out='.' names no file"),
    ],
)
def test_settings_out_of_range_are_named_with_their_limit(command, settings, said):
    with pytest.raises(UserError) as raised:
        parse_config(command, settings)
    assert said in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        (TrainConfig, ["algo.hidden_width=16384", "algo.symmetry_angle=3.14159", "demos.noise=1"]),
        (TrainConfig, ["env_steps=100000000", "evaluation_episodes=1000000", "env.control_mode=osc"]),
        (TrainConfig, ["demos.runs=[a,b]", "demos.episodes=0", "memory.encoder=vae"]),
        (EvalConfig, [*EVAL, "seed=0", "seeds=[0,1]"]),
        (RunsConfig, [*RUNS, "out=lift.v2"]),
        (MemoryBenchConfig, ["rows=2000000"]),
        (SimBenchConfig, ["resets=0"]),
        (TransferConfig, [*TRANSFER, "seed=0", "horizon=1", "out=runs/v1.2"]),
    ],
)
def test_settings_at_their_limits_are_taken(command, settings):
    assert isinstance(parse_config(command, settings), command)
