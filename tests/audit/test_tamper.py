"""A slice of the ten thousand tamperings; `make audit` does all of them."""

import pytest

from tests.audit.tamper import BUNDLE, DATABASE, Case, tamper


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return Case(tmp_path_factory.mktemp("tamper"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_every_tampering_is_found(case, seed):
    tried, missed = tamper(case, 200, seed=1000 + seed)
    assert not missed, missed[0][0]
    assert tried.total() == 200


@pytest.mark.slow
def test_all_kinds_are_tried(case):
    tried, _ = tamper(case, 400, seed=5)
    assert set(tried) == {how.__name__ for how in (*DATABASE, *BUNDLE)}


def test_without_the_anchor_a_log_computed_anew_is_not_found(case):
    """The teeth of the harness: what only the anchor shows does go unseen without it."""
    import random

    from tests.audit.tamper import cut_commits

    outcomes = []
    honest, case.anchoring = case.anchoring, case.anchoring._replace(file=case.folder / "none")
    key, case.key = case.key, type("Nobody", (), {"public": None})
    try:
        for seed in range(20):
            rng = random.Random(seed)
            outcomes.append(case.found_in_database(lambda c, rng=rng: cut_commits(c, rng)))
    finally:
        case.anchoring, case.key = honest, key
    assert False in outcomes
