"""What EMPO2 is compared with: PPO, SAC and SAC with demonstrations, by Stable-Baselines3.

They get the same environment, the same policy input, the same demonstrations and the same evaluation. The
library seeds and draws from the global random state, so a baseline is trained in a process of its own.
"""
