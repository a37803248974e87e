"""Deadlines without covert channels (paper 004, STAR): transactions with firm deadlines at many security levels.

Scheduler, lock manager, admission and controllers are state machines without a clock: whoever drives them says what
time it is. `simulator.py` drives them by simulated time; `transactions.py` drives them for programs written as
generators, by whatever clock its caller reads.
"""
