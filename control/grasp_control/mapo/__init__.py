"""Memory-augmented policy optimisation of programs, after Liang et al. 2018."""
