"""A planner: gives one worker one letter after the other, and finishes with the word."""

from leadhand import Finish, PlannerView, Propose


def decide(view: PlannerView) -> Propose | Finish:
    """Propose the next letter of the goal's text, or finish."""
    letters = list(view.goal.text)
    done = [view.results[f"letter-{number}"] for number in range(len(view.results))]
    if len(done) == len(letters):
        return Finish("".join(done))
    number = len(done)
    step = {
        "id": f"letter-{number}",
        "worker": "upper",
        "parameters": {"letter": letters[number]},
    }
    return Propose([step])
