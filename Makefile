# Every target sets up .venv by itself; nothing has to be activated. `make help` lists the targets.
#
# Variables: SEED (of `make train`), ARGS (passed on to grasp-train or to pytest), PYTHON (a Python 3.11).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

SEED ?= 0
ARGS ?=
PYTHON ?=

STAMP := .venv/.installed
MESSAGES := .venv/.grasp_msgs
VENV_PYTHON := .venv/bin/python
PIP := $(VENV_PYTHON) -m pip --disable-pip-version-check

# An environment that was moved with its checkout holds the old path in its scripts: install it again.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(shell rm -f $(STAMP))
endif

.PHONY: help install grasp-msgs train ros-demo test check lock clean

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

install: $(STAMP) $(MESSAGES)  ## Set up .venv (done by the other targets when needed)

grasp-msgs: $(MESSAGES)  ## Build the Grasp action for ROS 2 into .venv (part of install; half a minute)

train: $(STAMP)  ## Train the grasp policy; SEED=0, more settings in ARGS="group.key=value ..."
	.venv/bin/grasp-train seed=$(SEED) $(ARGS)

ros-demo: $(STAMP) $(MESSAGES)  ## Ten grasps by the ROS 2 nodes on the simulated robot; ARGS="env=... count=..."
	.venv/bin/python -m grasp_ros.demo $(ARGS)

test: $(STAMP) $(MESSAGES)  ## Run all tests; ARGS="-k name" narrows them
	OMP_NUM_THREADS=1 $(VENV_PYTHON) -m pytest $(ARGS)

check: $(STAMP)  ## Lint, check the formatting and the types
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m pyright

lock: $(STAMP)  ## Resolve all extras anew and write requirements.lock
	$(PIP) install --upgrade --upgrade-strategy eager -e '.[ros,ros-build,rtde,teleop,exchange,ray,baselines,dev]'
	$(VENV_PYTHON) -c "$$WRITE_LOCK" > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean:  ## Remove .venv, caches and built files; training runs stay
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(STAMP): pyproject.toml requirements.lock
	@python="$$($(find_python))"; "$$python" -c "$$REQUIRE_COMPILER"; \
	if ! $(VENV_PYTHON) -c $(is_311) 2>/dev/null; then "$$python" -m venv --clear .venv; fi
	@echo "Installing the packages of requirements.lock into .venv; this takes a few minutes."
	$(PIP) install -qq --constraint requirements.lock -e '.[ros,ros-build,rtde,teleop,exchange,baselines,dev]'
	@# robosuite asks for opencv-python, which shares the folder cv2 with the headless build and needs a
	@# libGL.so.1 that servers lack. The one installed last wins.
	$(PIP) install -qq --constraint requirements.lock --force-reinstall --no-deps opencv-python-headless
	@echo "$(CURDIR)" > $(STAMP)

$(MESSAGES): $(STAMP) $(wildcard ros_nodes/grasp_msgs/* ros_nodes/grasp_msgs/*/*)
	@echo "Building grasp_msgs."
	$(VENV_PYTHON) ros_nodes/grasp_msgs/wheels/build.py $(MESSAGES)

is_311 := 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))'

define find_python
for python in $(or $(PYTHON),python3.11 python3); do \
	if "$$python" -c $(is_311) >/dev/null 2>&1; then command -v "$$python"; exit 0; fi; \
done; \
echo "error: Python 3.11 with its venv module is needed: install it, or name it as in make PYTHON=path/to/python3.11" >&2; \
exit 1
endef

define REQUIRE_COMPILER
import os, pathlib, shutil, sys, sysconfig
compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
need = "is needed to build evdev, which robosuite depends on and which comes as source only: install"
if not shutil.which(compiler):
    sys.exit(f"error: a C compiler ({compiler}) {need} gcc, or set CC")
if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
    sys.exit(f"error: Python.h {need} python3.11-dev")
endef
export REQUIRE_COMPILER

# Distributions without an INSTALLER file are parts of a ROS wheel and no projects of their own. A local version
# such as +cpu names one build of a release; the lock names the release.
define WRITE_LOCK
from importlib.metadata import distributions
names = {}
for found in distributions():
    name = found.metadata["Name"]
    if found.read_text("INSTALLER") and name not in ("pip", "empo2-grasp"):
        names[name.lower()] = name + "==" + found.version.split("+")[0]
print("# Exact versions of every dependency and extra except gpu, resolved in one go. Written by \`make lock\`.")
for name in sorted(names):
    print(names[name])
endef
export WRITE_LOCK
