"""Evaluation: planners, models, prompts and policies compared on a suite of goals.

suite        what is compared: goals, arms, factors
trial        one goal under one arm, once, in a process and a folder of its own
campaign     all trials of a suite, several at a time, continued after an interruption
statistics   intervals, paired differences, shares of variance; pure
comparison   the results as a document, a table of trials and a page
"""
