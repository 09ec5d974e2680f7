"""`python -m grasp_sim.ur_emulator` is `grasp-emulate`."""

import sys

from grasp_sim.ur_emulator.command import main

sys.exit(main())
