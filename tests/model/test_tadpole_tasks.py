"""The bundled model on twenty tasks that its training could not see, and on issues that are not for it."""

from __future__ import annotations

import pytest

from quant.tadpole import foreign
from quant.tadpole.measure import Outcome, attempt, attempt_foreign, table
from quant.tadpole.tasks import sample

pytestmark = [
    *(pytest.mark.model, pytest.mark.jail, pytest.mark.slow),
    pytest.mark.usefixtures("require_model", "require_jail"),
]
FEWEST_SOLVED = 5  # of 20: the bundled file solves 7 (its card says why no more); 18 would be the bar
ENDS = ("agent", "stuck", "max_turns", "max_tokens_per_turn", "max_context_len")
FOREIGN = ("another language", "a question", "another tongue", "nothing there", "hostile")


@pytest.mark.timeout(400)
def test_it_solves_what_its_card_says_and_claims_nothing_else() -> None:
    outcomes = [attempt(task) for task in sample()]
    shown = table(outcomes)
    assert sum(o.solved for o in outcomes) >= FEWEST_SOLVED, shown
    assert [o.name for o in outcomes if o.claimed and not o.repaired] == [], shown
    n_turns = sum(o.n_turns for o in outcomes)
    assert sum(o.n_valid for o in outcomes) >= 0.9 * n_turns, shown


def _first(kind: str) -> Outcome:
    return attempt_foreign(next(case for case in foreign.cases() if case.kind == kind))


@pytest.mark.timeout(200)
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_not_for_it_is_never_claimed_to_be_fixed(kind: str) -> None:
    outcome = _first(kind)
    assert not outcome.repaired and not outcome.claimed, outcome
    assert outcome.n_turns <= 20 and outcome.reason in ENDS, outcome
