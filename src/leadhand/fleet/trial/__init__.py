"""A fleet on trial: a generated repository, scripted agents, faults by a profile, real everything.

    scenario    what is tried: the repository, the tasks, and which attempt goes wrong, and how
    engine      the fleet itself, in a process of its own, so that it can be killed
    referee     the trouble from outside: kills the engine, fills its disk, commits beside it
    figures     what became of it, from the log, the journal and git

Agents are real processes in a real sandbox, git is git, the gate runs every check of the
repository, and the engine is the engine. What is made up is the agents' skill: each attempt goes
wrong with the given chance, in one of thirteen ways, drawn from the seed. Nothing that is counted
is taken from the engine's word alone: commits are checked out and tested again by another way.
"""
