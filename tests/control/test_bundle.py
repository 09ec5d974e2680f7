"""Policy bundles: parity, units, manifests, refusals, and running without torch (C3)."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import onnx.external_data_helper
import onnxruntime
import pytest
import torch

from grasp_control import bundle_export
from grasp_control.bundle import (
    PARITY_TOLERANCE,
    BundlePolicy,
    check_bundle,
    export_bundle,
    load_bundle,
)
from grasp_control.durable import sha256_of
from grasp_control.manifest import BundleError, Expectation, Manifest, Training
from grasp_control.memory.window import episode_windows, window_width
from grasp_control.networks import DistilledPolicy, Normaliser, mlp
from grasp_sim.contract import (
    ACTION_DIM,
    OBSERVATION_DIM,
    OBSERVATION_NAMES,
    ActionScale,
    ContractError,
    GraspState,
    decode,
    encode,
)

CONTEXT = 4
W = window_width(CONTEXT, OBSERVATION_DIM, ACTION_DIM)


def manifest(**changes) -> Manifest:
    packages = {"torch": "2.13.0"}
    training = Training("run-1", "empo2", 3, 5_000_000, 20, packages, "lift", "servo", CONTEXT)
    base = Manifest(
        robot="ur5e",
        gripper="robotiq-2f85",
        control_mode="servo",
        task="lift",
        action_scale=ActionScale(),
        context=CONTEXT,
        training=(training,),
        success={"success_rate": 0.94, "episodes": 100},
    )
    return dataclasses.replace(base, **changes)


def policy_network(mean: float = 500.0, std: float = 20.0, seed: int = 0) -> DistilledPolicy:
    generator = torch.Generator().manual_seed(seed)
    normaliser = Normaliser(np.full(W, mean), np.full(W, std))
    return DistilledPolicy(normaliser, mlp(W, ACTION_DIM, generator, hidden=(64, 64)))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundles") / "lift"
    export_bundle(path, policy_network(), manifest=manifest())
    return path


def copy_of(bundle, tmp_path, **changes):
    """A copy of the bundle whose manifest has other values; None removes a field."""
    path = tmp_path / "copy"
    path.mkdir()
    (path / "policy.onnx").write_bytes((bundle / "policy.onnx").read_bytes())
    data = json.loads((bundle / "manifest.json").read_text()) | changes
    (path / "manifest.json").write_text(json.dumps({k: v for k, v in data.items() if v is not None}))
    return path


@pytest.mark.parametrize(
    ("mean", "std"), [(0.0, 1.0), (500.0, 20.0), (-3e4, 1e3), (0.04, 1e-3), (1e4, 0.0), (0.0, 1e6)]
)
def test_the_file_alone_gives_the_policys_actions_whatever_its_statistics(tmp_path, mean, std):
    network = policy_network(mean, std)
    check = export_bundle(tmp_path / "b", network, manifest=manifest())
    assert check.probes == 1000
    assert check.action_difference <= PARITY_TOLERANCE
    # Independently of check_bundle: raw windows around the statistics, actions that really vary.
    windows = (mean + max(std, 1e-3) * np.random.default_rng(1).normal(size=(64, W))).astype(np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "b" / "policy.onnx"))
    action = np.asarray(session.run(["action"], {"window": windows})[0])
    with torch.no_grad():
        expected = network(torch.from_numpy(windows)).numpy()
    np.testing.assert_allclose(action, expected, rtol=0, atol=PARITY_TOLERANCE)
    assert action.std(axis=0).min() > 0.05


def test_commands_in_physical_units_are_right_on_100_random_inputs(tmp_path):
    scale = ActionScale(position=0.02, yaw=0.3, opening=0.085, force_min=20.0, force_max=235.0)
    export_bundle(tmp_path / "b", policy_network(), manifest=manifest(action_scale=scale))
    policy = load_bundle(tmp_path / "b", expect=None)
    windows = (500 + 100 * np.random.default_rng(0).normal(size=(100, W))).astype(np.float32)
    actions, commands = policy.run(windows)
    for action, row in zip(actions, commands, strict=True):
        command = decode(action, scale)
        expected = [*command.delta_position, command.delta_yaw, command.opening, command.force_limit]
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-7)
    assert commands[:, 4].min() >= -1e-8
    assert commands[:, 4].max() <= 0.085 + 1e-7
    assert commands[:, 5].min() >= 20.0 - 1e-4
    assert commands[:, 5].max() <= 235.0 + 1e-4
    assert np.ptp(commands[:, 5]) > 100.0
    notes = {p.key: p.value for p in onnx.load(tmp_path / "b" / "policy.onnx").metadata_props}
    assert notes["command_units"] == "m,m,m,rad,m,N"


class _Constant(torch.nn.Module):
    """The same action whatever the window."""

    def __init__(self, action: list[float]) -> None:
        super().__init__()
        self.register_buffer("action", torch.tensor(action))

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        return self.action + 0.0 * windows[:, :1].clamp(-1.0, 1.0)


@pytest.mark.parametrize(
    ("opening", "millimetres"),
    [(-1.0, 0.0), (-0.5, 0.0), (-0.25, 21.25), (0.0, 42.5), (0.25, 63.75), (0.5, 85.0), (0.75, 85.0)],
)
def test_the_exported_opening_saturates_and_no_other_command_does(tmp_path, opening, millimetres):
    action = [0.75, -0.75, 0.5, 0.8, opening, 0.6]
    export_bundle(tmp_path / "b", _Constant(action), manifest=manifest())
    actions, commands = load_bundle(tmp_path / "b", expect=None).run(np.zeros((2, W)))
    np.testing.assert_allclose(actions, [action, action], rtol=0, atol=1e-7)
    expected = [0.009375, -0.009375, 0.00625, 0.08, millimetres / 1000.0, 192.0]
    np.testing.assert_allclose(commands, [expected, expected], rtol=1e-6, atol=1e-8)


def test_check_finds_an_export_that_lost_its_normalisation(tmp_path):
    network = policy_network()
    stripped = DistilledPolicy(Normaliser(np.zeros(W), np.ones(W)), network.network)
    export_bundle(tmp_path / "b", stripped, manifest=manifest())
    with pytest.raises(BundleError, match="differ from the original network"):
        check_bundle(tmp_path / "b", network)


def test_a_failed_export_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "b"
    export_bundle(path, policy_network(), manifest=manifest())
    before = (path / "manifest.json").read_text()
    whole = policy_network()
    unbounded = torch.nn.Sequential(whole.normaliser, whole.network)
    unclipped = torch.nn.Sequential(whole.network, torch.nn.Tanh())
    for network, given, message in (
        (unbounded, manifest(), "differ from the original"),
        (unclipped, manifest(), "not all finite"),
        (policy_network(), manifest(success={"rate": float("nan")}), "success is .*finite"),
        (policy_network(), manifest(observation_names=OBSERVATION_NAMES[:-1]), "observation_names has 12"),
        (policy_network(), manifest(contract_version=7), "contract version 1 is installed"),
    ):
        with pytest.raises(BundleError, match=message) as raised:
            export_bundle(path, network, manifest=given)
        assert "partial" not in str(raised.value)
    monkeypatch.setattr(bundle_export.onnx, "save", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        export_bundle(path, policy_network(seed=2), manifest=manifest())
    assert (path / "manifest.json").read_text() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["b"]
    check_bundle(path)


def test_export_replaces_a_bundle_and_nothing_else(tmp_path):
    path = tmp_path / "b"
    export_bundle(path, policy_network(), manifest=manifest())
    export_bundle(path, policy_network(seed=1), manifest=manifest(task="slippery"))
    assert load_bundle(path, expect=None).manifest.task == "slippery"
    check_bundle(path, policy_network(seed=1))
    other = tmp_path / "notes"
    other.mkdir()
    (other / "mine.txt").write_text("keep")
    with pytest.raises(BundleError, match="not a policy bundle"):
        export_bundle(other, policy_network(), manifest=manifest())
    assert (other / "mine.txt").read_text() == "keep"


def test_export_changes_neither_the_network_nor_the_global_random_state(tmp_path):
    network = policy_network().train()
    parameters = {name: value.clone() for name, value in network.state_dict().items()}
    before = torch.get_rng_state()
    export_bundle(tmp_path / "b", network, manifest=manifest())
    assert torch.equal(before, torch.get_rng_state())
    assert network.training
    assert all(torch.equal(value, parameters[name]) for name, value in network.state_dict().items())


def test_manifest_survives_the_file(bundle):
    loaded = load_bundle(bundle, expect=Expectation()).manifest
    assert dataclasses.replace(loaded, network_sha256="") == manifest()
    assert loaded.window_width == W


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Manifest)])
def test_each_missing_field_is_one_line_naming_it(bundle, tmp_path, name):
    with pytest.raises(BundleError) as raised:
        load_bundle(copy_of(bundle, tmp_path, **{name: None}), expect=None)
    lines = str(raised.value).splitlines()
    assert len(lines) == 1
    assert f"manifest.json: {name} is missing; it must be" in lines[0]


def test_every_wrong_field_is_reported_at_once(bundle, tmp_path):
    path = copy_of(
        bundle,
        tmp_path,
        robot="",
        context=2.5,
        rate_hz=True,
        success={"rate": "high"},
        action_scale={"position": 1.0},
        training=[{"seed": -1}],
        observation_names="tcp_height",
        network_sha256="abc",
        colour="red",
    )
    with pytest.raises(BundleError) as raised:
        load_bundle(path, expect=None)
    lines = str(raised.value).splitlines()
    for name in (
        "robot is ''",
        "context is 2.5",
        "rate_hz is True",
        "success is {'rate': 'high'}",
        "action_scale.yaw is missing",
    ):
        assert sum(name in line for line in lines) == 1
    for name in (
        "training[0].seed is -1",
        "training[0].run_id is missing",
        "observation_names is",
        "colour is not a",
    ):
        assert sum(name in line for line in lines) == 1
    assert all(line.startswith(str(path)) for line in lines)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": 0}, "context is 0; it must lie between 1 and 20"),
        ({"rate_hz": 10**400}, "rate_hz is 1000.*; it must be a finite number"),
        ({"rate_hz": 0.0}, "rate_hz is 0.0; it must be above 0"),
        ({"schema_version": 9}, "schema_version is 9; this version reads 2"),
        ({"contract_version": 2}, "contract version 1 is installed, the bundle has 2"),
        ({"observation_names": [*OBSERVATION_NAMES[:-1], "tcp_x"]}, "observation_names must be .*tcp_x"),
        ({"command_units": ["mm", "m", "m", "rad", "m", "N"]}, "command_units must be"),
        ({"context": 5}, r"inputs and outputs .*76.* the manifest asks for .*95"),
    ],
)
def test_bundles_that_depart_from_the_contract_are_refused(bundle, tmp_path, changes, message):
    with pytest.raises(BundleError, match=message):
        load_bundle(copy_of(bundle, tmp_path, **changes), expect=None)


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        (Expectation(robot="ur10e"), "robot 'ur10e' is asked for, the bundle has 'ur5e'"),
        (Expectation(gripper="hand-e"), "gripper 'hand-e' is asked for"),
        (
            Expectation(control_mode="osc_pose"),
            "control_mode 'osc_pose' is asked for, the bundle has 'servo'",
        ),
        (Expectation(rate_hz=10.0), r"rate_hz 10.0 is asked for, the bundle has 20.0"),
        (Expectation(action_scale=ActionScale(position=0.05)), r"action_scale.position 0.05 .* 0.0125"),
        (Expectation(action_scale=ActionScale(force_max=100.0)), r"action_scale.force_max 100.0 .* 235.0"),
    ],
)
def test_a_bundle_for_another_robot_is_refused_with_what_to_do(bundle, expectation, message):
    with pytest.raises(BundleError, match=message) as raised:
        load_bundle(bundle, expect=expectation)
    assert len(str(raised.value).splitlines()) == 1


def test_all_misfits_are_named_together(bundle):
    with pytest.raises(BundleError) as raised:
        load_bundle(bundle, expect=Expectation(robot="ur3", rate_hz=50.0))
    assert len(str(raised.value).splitlines()) == 2


def test_missing_and_damaged_files_are_named(bundle, tmp_path):
    with pytest.raises(BundleError, match="no such directory"):
        load_bundle(tmp_path / "absent", expect=None)
    path = copy_of(bundle, tmp_path)
    content = bytearray((path / "policy.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "policy.onnx").write_bytes(content)
    with pytest.raises(BundleError, match="was changed after its export"):
        load_bundle(path, expect=None)
    (path / "policy.onnx").unlink()
    with pytest.raises(BundleError, match=r"policy.onnx is missing \(found: \['manifest.json'\]\)"):
        load_bundle(path, expect=None)
    (path / "policy.onnx").write_bytes(b"")
    for text in ("", "{", "[]", "\x00", '{"seed": ' + "9" * 5000 + "}", "[" * 100_000):
        (path / "manifest.json").write_text(text)
        with pytest.raises(BundleError, match=r"manifest.json (is not JSON|holds a list)"):
            load_bundle(path, expect=None)


def state(time: float) -> GraspState:
    return GraspState(
        joint_positions=np.zeros(6),
        joint_velocities=np.zeros(6),
        tcp_position=np.array([0.4, 0.1, 0.3 - 0.01 * time]),
        tcp_quaternion=np.array([1.0, 0.0, 0.0, 0.0]),
        gripper_opening=0.08,
        gripper_force=0.0,
        object_position=np.array([0.5, 0.0, 0.02]),
        object_quaternion=np.array([0.0, 0.0, 0.1, 0.995]),
        object_size=np.full(3, 0.04),
        time=time,
        object_time=time,
    )


def test_a_network_of_nans_is_named_and_not_obeyed(tmp_path):
    export_bundle(tmp_path / "bundle", policy_network(), manifest=manifest())
    model = onnx.load(tmp_path / "bundle" / "policy.onnx")
    for tensor in model.graph.initializer:
        if tensor.dims == [64, 64]:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.full((64, 64), np.nan, np.float32), tensor.name))
    onnx.save(model, tmp_path / "bundle" / "policy.onnx")
    digest = sha256_of(tmp_path / "bundle" / "policy.onnx")
    path = copy_of(tmp_path / "bundle", tmp_path, network_sha256=digest)
    policy = load_bundle(path, expect=None)
    with pytest.raises(BundleError, match="actions that are not finite, so its training diverged"):
        policy.act_batch(np.zeros((1, W), np.float32))


def test_acting_step_by_step_equals_the_windows_of_the_whole_episode(tmp_path):
    export_bundle(tmp_path / "b", policy_network(0.1, 0.5), manifest=manifest())
    policy: BundlePolicy = load_bundle(tmp_path / "b", expect=Expectation())
    rng = np.random.default_rng(0)
    observations = np.stack([encode(state(float(t))) for t in range(8)])
    executed = rng.uniform(-1, 1, size=(7, ACTION_DIM)).astype(np.float32)
    for _ in range(2):  # a second episode starts afresh
        policy.reset(observations[0])
        acted = [policy.act(observations[0])]
        for action, following in zip(executed, observations[1:], strict=True):
            policy.observe(action, following)
            acted.append(policy.act(following))
        expected = policy.act_batch(episode_windows(observations, executed, CONTEXT))
        np.testing.assert_allclose(np.stack(acted), expected, atol=1e-6)
    assert acted[0].dtype == np.float32
    assert acted[0].shape == (ACTION_DIM,)


def test_bad_observations_and_actions_never_enter_the_window(bundle):
    policy = load_bundle(bundle, expect=None)
    observation = encode(state(0.0))
    with pytest.raises(RuntimeError, match="reset"):
        policy.act(observation)
    policy.reset(observation)
    before = policy.act(observation)
    broken = observation.copy()
    broken[2] = np.nan
    zero = np.zeros(ACTION_DIM)
    for action, following, message in (
        (zero, broken, r"not finite in \['gripper_force'\]"),
        (zero, observation[:5], r"shape \(5,\)"),
        (zero + 1.5, observation, r"in \[-1, 1\]"),
        (zero + np.nan, observation, r"in \[-1, 1\]"),
        (zero[:3], observation, r"6 values"),
    ):
        with pytest.raises(ContractError, match=message):
            policy.observe(action, following)
    with pytest.raises(ContractError, match="does not end with"):
        policy.act(encode(state(1.0)))
    with pytest.raises(ContractError, match="76"):
        policy.act_batch(np.zeros((2, 75)))
    assert np.array_equal(policy.act(observation), before)


def test_the_folder_of_a_run_names_the_bundle_in_it(bundle, tmp_path):
    inside = copy_of(bundle, tmp_path).rename(tmp_path / "bundle")
    with pytest.raises(BundleError, match=f"{tmp_path} is not a policy bundle, but {inside} is"):
        load_bundle(tmp_path, expect=None)


def test_loading_running_and_checking_work_where_torch_cannot_be_imported(bundle):
    code = """
import sys
from typing import Any
sys.modules["torch"] = None  # any import of torch now fails
import numpy as np
from grasp_control.bundle import check_bundle, load_bundle
from grasp_control.manifest import Expectation
policy = load_bundle(sys.argv[1], expect=Expectation())
policy.reset(np.zeros(13)); policy.observe(np.zeros(6), np.ones(13))
print(policy.act(np.ones(13)).shape, check_bundle(sys.argv[1]).probes)
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(bundle)], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "(6,) 1000"


def foreign_bundle(bundle, tmp_path, nodes, *, initializers=(), domains=()):
    """A bundle like `bundle` whose digest is right and whose network consists of `nodes`."""
    floats = onnx.TensorProto.FLOAT
    ports = [("window", W), ("action", ACTION_DIM), ("command", ACTION_DIM)]
    window, *outputs = (onnx.helper.make_tensor_value_info(name, floats, ["batch", n]) for name, n in ports)
    graph = onnx.helper.make_graph(nodes, "foreign", [window], outputs, initializer=list(initializers))
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in (("", 17), *domains)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    path = copy_of(bundle, tmp_path)
    onnx.save(model, path / "policy.onnx")
    data = json.loads((path / "manifest.json").read_text())
    data["network_sha256"] = sha256_of(path / "policy.onnx")
    (path / "manifest.json").write_text(json.dumps(data))
    return path


def array(name: str, values, dtype: Any = np.float32):
    return onnx.numpy_helper.from_array(np.asarray(values, dtype), name)


NODE = onnx.helper.make_node
ACTION_SLICE = [
    array("zero", [0], np.int64),
    array("six", [ACTION_DIM], np.int64),
    array("one", [1], np.int64),
]
SLICE = NODE("Slice", ["window", "zero", "six", "one"], ["raw"])
"""The first six numbers of the window, as the start of an action."""


@pytest.mark.parametrize("value", [5.0, 3e38])
def test_a_foreign_network_that_leaves_the_range_is_refused_before_it_acts(bundle, tmp_path, value):
    nodes = [SLICE, NODE("Mul", ["raw", "nothing"], ["none"]), NODE("Add", ["none", "value"], ["action"])]
    nodes.append(NODE("Identity", ["action"], ["command"]))
    constants = [array("nothing", 0.0), array("value", value), *ACTION_SLICE]
    path = foreign_bundle(bundle, tmp_path, nodes, initializers=constants)
    with pytest.raises(BundleError, match=r"beyond \[-1, 1\]: it was not made by grasp-distill"):
        load_bundle(path, expect=Expectation())
    policy = load_bundle(path, expect=None)  # To be looked at it may be opened, not to be obeyed.
    with pytest.raises(BundleError, match=r"action of .*not made by grasp-distill"):
        policy.act_batch(np.zeros((1, W)))


def test_a_foreign_network_whose_commands_are_not_the_actions_is_refused(bundle, tmp_path):
    nodes = [SLICE, NODE("Clip", ["raw", "low", "high"], ["action"])]
    nodes.append(NODE("Identity", ["action"], ["command"]))  # 0 to 1 where newtons are due
    constants = [array("low", -1.0), array("high", 1.0), *ACTION_SLICE]
    path = foreign_bundle(bundle, tmp_path, nodes, initializers=constants)
    with pytest.raises(BundleError, match=r"commands that differ.*not made by grasp-distill"):
        load_bundle(path, expect=Expectation())


def test_a_network_that_breaks_off_or_gives_no_rows_is_one_clear_error(bundle, tmp_path):
    gather = [NODE("Gather", ["window", "far"], ["raw"], axis=1), NODE("Tanh", ["raw"], ["action"])]
    gather.append(NODE("Identity", ["action"], ["command"]))
    # An index that is out of range, and computed, so that it shows only when the network runs.
    far = [NODE("Shape", ["window"], ["shape"]), NODE("Gather", ["shape", "one"], ["width"], axis=0)]
    far.append(NODE("Add", ["width", "six_times"], ["far"]))
    constants = [array("one", [1], np.int64), array("six_times", [9] * ACTION_DIM, np.int64)]
    path = foreign_bundle(bundle, tmp_path, [*far, *gather], initializers=constants)
    with pytest.raises(BundleError, match=r"broke off .*not made by grasp-distill"):
        load_bundle(path, expect=Expectation())
    with pytest.raises(BundleError, match="broke off"):
        load_bundle(path, expect=None).act_batch(np.zeros((1, W)))

    nodes = [SLICE, NODE("Slice", ["raw", "zero", "zero", "zero"], ["action"])]
    nodes.append(NODE("Identity", ["action"], ["command"]))
    (tmp_path / "rows").mkdir()
    path = foreign_bundle(bundle, tmp_path / "rows", nodes, initializers=ACTION_SLICE)
    with pytest.raises(BundleError, match=r"float32 \(0, 6\), not as float32 \(1, 6\)"):
        load_bundle(path, expect=Expectation())
    with pytest.raises(BundleError, match=r"\(0, 6\)"):
        load_bundle(path, expect=None).act_batch(np.zeros((1, W)))


def test_a_network_that_may_never_end_is_refused_unrun(bundle, tmp_path):
    boolean, number = onnx.TensorProto.BOOL, onnx.TensorProto.INT64
    info = onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph(
        [NODE("Identity", ["go"], ["go_on"])],
        "endless",
        [info("i", number, []), info("go", boolean, [])],
        [info("go_on", boolean, [])],
    )
    nodes = [NODE("Loop", ["", "yes"], [], body=body), SLICE, NODE("Tanh", ["raw"], ["action"])]
    nodes.append(NODE("Identity", ["action"], ["command"]))
    constants = [array("yes", True, bool), *ACTION_SLICE]
    path = foreign_bundle(bundle, tmp_path, nodes, initializers=constants)
    for expect in (None, Expectation()):
        with pytest.raises(
            BundleError, match="holds the control flow Loop: it was not made by grasp-distill"
        ):
            load_bundle(path, expect=expect)


def test_foreign_operators_and_arrays_in_other_files_are_refused(bundle, tmp_path):
    nodes = [
        NODE("Gelu", ["window"], ["x"], domain="com.microsoft"),
        SLICE,
        NODE("Tanh", ["raw"], ["action"]),
    ]
    nodes.append(NODE("Identity", ["action"], ["command"]))
    elsewhere = array("elsewhere", [1.0])
    onnx.external_data_helper.set_external_data(elsewhere, "other.bin")
    elsewhere.data_location = onnx.TensorProto.EXTERNAL
    elsewhere.ClearField("raw_data")
    path = foreign_bundle(
        bundle, tmp_path, nodes, initializers=[elsewhere, *ACTION_SLICE], domains=[("com.microsoft", 1)]
    )
    with pytest.raises(BundleError, match=r"arrays in other files, the operator com\.microsoft\.Gelu"):
        load_bundle(path, expect=None)
