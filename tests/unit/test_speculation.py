"""Drafts: where they are found, how long they are, and what is kept of what batches cost."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.defaults import defaults_from
from agent.errors import ContextTooLarge, UsageError
from agent.model.batch_costs import MOST_FILES, CostStore, costs_folder, last_measured
from agent.model.client import plan_drafts
from agent.model.memory import MIB, ContextPlan, MemoryNeed, Setup
from agent.model.speculation import (
    LOOK_BACK_TOKENS,
    MEASURED_SIZES,
    MOST_DRAFTED,
    SEPARATOR,
    BatchCosts,
    Draft,
    DraftLength,
    look_up,
    measure_costs,
    pack,
    without_line_numbers,
)
from agent.model_report import report_drafts

CPU = BatchCosts(by_size={1: 1.0, 4: 1.6, 8: 3.4})
POOR = BatchCosts(by_size={1: 1.0, 2: 1.9, 4: 3.9, 8: 8.0})


def test_a_draft_is_what_followed_the_same_tokens_the_last_time() -> None:
    tokens = [1, 2, 3, 4, 5, 1, 2, 3, 6, 7, 8, 1, 2]
    assert look_up(pack(tokens), 3, 3) == Draft(tokens=(6, 7, 8), kind=3)
    assert look_up(pack(tokens), 3, 5) == Draft(tokens=(6, 7, 8, 1, 2), kind=3)
    assert look_up(pack(tokens), 4, 3) is None  # no three tokens that are the same
    assert look_up(pack(tokens), 3, 0) is None


def test_a_longer_pattern_goes_before_a_later_one() -> None:
    tokens = [9, 1, 2, 3, 50, 8, 1, 2, 3, 60, 9, 1, 2]
    assert look_up(pack(tokens), 3, 1) == Draft(tokens=(50,), kind=4)


def test_a_draft_may_reach_into_what_is_being_said() -> None:
    assert look_up(pack([5, 6, 7, 5, 6]), 7, 4) == Draft(tokens=(5, 6, 7), kind=3)


def test_a_pattern_is_never_found_between_tokens() -> None:
    # The bytes of these tokens, shifted by one, are those of others.
    tokens = [0x01020304, 0x05060708, 0x090A0B0C, 0x0D0E0F10] * 3
    shifted = [0x02030405, 0x06070809, 0x0A0B0C0D]
    assert look_up(pack([*tokens, *shifted[:2]]), shifted[2], 3) is None


def test_a_draft_is_not_looked_for_beyond_the_limit() -> None:
    far = [1, 2, 3, 4, *range(10, 10 + LOOK_BACK_TOKENS), 1, 2]
    near = [*range(10, 12), 1, 2, 3, 4, *range(10, LOOK_BACK_TOKENS), 1, 2]
    assert look_up(pack(far), 3, 1) is None
    assert look_up(pack(near), 3, 1) == Draft(tokens=(4,), kind=3)


def test_a_draft_is_always_a_part_of_the_conversation() -> None:
    rng = random.Random(1)
    for _ in range(300):
        tokens = [rng.randrange(5) for _ in range(rng.randrange(60))]
        token, n_most = rng.randrange(5), rng.randrange(9)
        found = look_up(pack(tokens), token, n_most)
        said = [*tokens, token]
        if found is not None:
            pattern = [*said[-found.kind :], *found.tokens]
            assert 1 <= len(found.tokens) <= n_most
            assert any(said[i : i + len(pattern)] == pattern for i in range(len(tokens) - found.kind + 1))
        elif n_most:
            assert not any(said[i : i + 3] == said[-3:] for i in range(len(tokens) - 2)) or len(said) < 3


def test_a_source_is_looked_in_behind_the_conversation() -> None:
    sources = pack([SEPARATOR, 7, 1, 2, 3, 4, 5, 6, SEPARATOR, SEPARATOR, 2, 3, 4, SEPARATOR])
    assert look_up(pack([1, 2]), 3, 5, sources) == Draft(tokens=(4, 5, 6), kind=3)
    assert look_up(pack([1, 2, 3, 9, 1, 2]), 3, 1, sources) == Draft(tokens=(9,), kind=3)
    assert look_up(pack([7, 7, 1, 2]), 3, 1, sources) == Draft(tokens=(4,), kind=4)
    assert look_up(pack([2, 3]), 4, 5, sources) is None  # the source ends there


def test_what_read_showed_is_as_in_the_file_without_its_numbers() -> None:
    assert without_line_numbers("a.py\n9. def f():\n10.     return 1\n11. \n12. x = 3. 4") == (
        "a.py\ndef f():\n    return 1\n\nx = 3. 4"
    )


def test_costs_between_measured_sizes_lie_on_a_line() -> None:
    assert [round(CPU.cost(n), 3) for n in (1, 2, 4, 6, 8, 16)] == [1.0, 1.2, 1.6, 2.5, 3.4, 6.8]
    assert CPU.best(MOST_DRAFTED) == (3, 2.5)
    assert CPU.best(2)[0] == 2
    assert CPU.pays and not POOR.pays


def test_drafts_grow_with_what_is_right_and_end_where_nothing_is() -> None:
    length = DraftLength(CPU)
    assert length.choose(16, 7) == 3
    for _ in range(30):
        length.learn(3, 0, failed=True)
    assert length.choose(3, 7) == 0
    assert length.choose(16, 7) == 3  # another kind of guess
    n_tried = 1 + next(n for n in range(1000) if length.choose(3, 7))
    assert 10 < n_tried < 200  # it is tried again, sometimes
    for _ in range(30):
        length.learn(3, 3, failed=False)
    assert length.choose(3, 7) == 3
    assert length.choose(3, 2) == 2
    assert all(DraftLength(POOR).choose(kind, 7) == 0 for kind in (3, 4, 8))


def test_measuring_takes_the_least_of_its_rounds_and_keeps_to_its_budget() -> None:
    rounds: list[int] = []

    def time_s(size: int, unit_s: float = 0.001) -> float:
        rounds.append(size)
        noise = 3.0 if len(rounds) <= 1 + len(MEASURED_SIZES) else 1.0  # a machine that is busy at first
        return noise * unit_s * (1 + 0.2 * (size - 1))

    assert measure_costs(time_s, 1.0).by_size == pytest.approx({1: 1.0, 2: 1.2, 4: 1.6, 8: 2.4})
    assert rounds == [1, *MEASURED_SIZES * 3]
    rounds.clear()
    measure_costs(lambda size: time_s(size, 0.1), 0.5)
    assert rounds == [1, *MEASURED_SIZES]


def test_costs_are_kept_by_model_build_and_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = str(tmp_path / "model.gguf")
    two, four = (CostStore(costs_folder(), model, {"n_threads": n}) for n in (2, 4))
    assert two.load() is None and last_measured(model) is None
    assert two.store(CPU) == two.load() == last_measured(model)
    assert four.load() is None
    kept = two.load()
    assert kept is not None and kept.is_final and kept.costs == CPU
    (path,) = costs_folder().glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    for text in ("", "[]", "{", '{"costs": {"1": 0}}', '{"costs": {"2": 1}, "n_times": 1, "day": ""}', "\0"):
        path.write_text(text)
        assert two.load() is None and last_measured(model) is None


def test_what_does_not_pay_is_measured_three_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = CostStore(tmp_path / "costs", str(tmp_path / "m.gguf"), {})
    finals = [store.store(POOR).is_final for _ in range(3)]
    assert finals == [False, False, True]
    other = CostStore(tmp_path / "costs", str(tmp_path / "n.gguf"), {})
    other.store(POOR)
    assert other.store(CPU).is_final and other.load() is not None
    for n in range(MOST_FILES + 5):
        CostStore(tmp_path / "costs", str(tmp_path / f"{n}.gguf"), {}).store(CPU)
    assert len(list((tmp_path / "costs").glob("*.json"))) == MOST_FILES


def test_doctor_says_whether_drafts_pay_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = str(tmp_path / "model.gguf")
    assert report_drafts(path, False) == "No tokens are drafted: model.speculation is false."
    assert "measured when the model is loaded" in report_drafts(path, "auto")
    day = CostStore(costs_folder(), path, {}).store(POOR).day
    cost = f"2 tokens at once take as long as 1.9 one by one (measured {day})"
    off = f"No tokens are drafted, since it does not pay on this machine: {cost}."
    assert report_drafts(path, "auto") == f"{off} It is measured again with the next loads."
    assert report_drafts(path, True).endswith(f"though it does not pay on this machine: {cost}.")
    for _ in range(2):
        CostStore(costs_folder(), path, {}).store(POOR)
    assert report_drafts(path, "auto") == off
    CostStore(costs_folder(), path, {}).store(CPU)
    assert report_drafts(path, "auto") == (
        "Text that repeats what was read is drafted, 3 tokens ahead, up to 2.5 times as fast: "
        f"4 tokens at once take as long as 1.6 one by one (measured {day})."
    )


def test_the_setting_is_auto_true_or_false() -> None:
    for value in ("auto", True, False):
        assert defaults_from({"model": {"speculation": value}}).model.speculation is value
    assert defaults_from({}).model.speculation == "auto"
    for wrong in ("always", 1, 0):
        with pytest.raises(UsageError, match=r"model\.speculation must be"):
            defaults_from({"model": {"speculation": wrong}})


def _plans(room: int, explicit_error: bool = False) -> Callable[[int], ContextPlan]:
    """Plans of a model whose context shrinks by what the states for drafts need beyond `room`."""

    def plan(n_rs_seq: int) -> ContextPlan:
        if n_rs_seq > room and explicit_error:
            raise ContextTooLarge("too large", "Ask for less.", largest=1)
        need = MemoryNeed(
            weights_bytes=0, repacked_bytes=0, state_bytes=n_rs_seq * MIB, checkpoints_bytes=0, compute_bytes=0,
            process_bytes=0, kv_bytes_per_token=1, mask_bytes_per_token=1,
        )  # fmt: skip
        return ContextPlan(n_ctx=4096 if n_rs_seq <= room else 2048, setup=Setup(), need=need)

    return plan


@pytest.mark.parametrize("raises", [False, True])
def test_drafts_never_shorten_the_context(raises: bool) -> None:
    for room, n_states in ((9, 7), (7, 7), (6, 3), (2, 1), (0, 0)):
        plan, n_rs_seq = plan_drafts(_plans(room, raises), is_wanted=True)
        assert (plan.n_ctx, n_rs_seq, plan.need.state_bytes) == (4096, n_states, n_states * MIB)
    assert plan_drafts(_plans(9), is_wanted=False)[1] == 0
