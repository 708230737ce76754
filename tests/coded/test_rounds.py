"""The state machine of one update, told by hand what happens and when."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.coded.rounds import Round, Rows, fastest_first, is_linear, make_round
from counterpoint.coded.simulator import parse_scheme

SCHEMES = ("uncoded", "replication", "stream:3", "backup", "hedge:1.5", "mds", "ldpc", "cyclic:2", "systematic")


def begin(scheme: str, num_agents: int, num_learners: int, free: int | None = None, unit: float = 1.0) -> Round:
    made = make_round(parse_scheme(scheme), num_agents, range(num_learners), lambda: unit)
    for learner in range(num_learners if free is None else free):
        made.free(learner)
    return made


def given_out(round_: Round, now: float = 0.0) -> list[tuple[int, tuple[int, ...]]]:
    return [(learner, task.agents) for learner, task in round_.assign(now)]


def test_uncoded_gives_each_agent_once():
    made = begin("uncoded", 2, 4)
    assert given_out(made) == [(0, (0,)), (1, (1,))]
    made.answered(0)
    assert given_out(made, 100.0) == []
    assert made.timer(100.0) == math.inf
    made.answered(1)
    assert made.done


def test_backup_copies_the_agent_handed_out_longest_ago():
    made = begin("backup", 3, 4)
    assert given_out(made) == [(0, (0,)), (1, (1,)), (2, (2,)), (3, (0,))]
    assert made.wanted(3)
    made.answered(3)
    assert not made.wanted(0), "agent 0 is known now"
    assert given_out(made, 1.0) == [(3, (1,))]
    made.answered(1)
    made.answered(2)
    assert made.done


def test_hedge_copies_after_its_timer():
    made = begin("hedge:1.5", 2, 3, unit=2.0)
    assert given_out(made, 10.0) == [(0, (0,)), (1, (1,))]
    assert made.timer(10.0) == 3.0
    made.answered(0)
    assert given_out(made, 12.9) == []
    assert given_out(made, 13.0) == [(0, (1,))]
    assert made.timer(13.0) == 3.0


def test_a_hedge_without_a_known_unit_waits():
    made = begin("hedge", 1, 2, unit=math.inf)
    given_out(made)
    assert given_out(made, 1e9) == []


def test_streams_go_through_their_queues_and_leave_out_what_is_known():
    made = begin("stream:2", 3, 2)
    assert given_out(made) == [(0, (0,)), (1, (1,))]
    made.answered(0)
    assert given_out(made) == [(0, (2,))]
    made.answered(1)
    assert given_out(made) == [], "1's queue is 1, 0: both known; 2 is being computed"
    made.lost(0)
    assert given_out(made) == [(1, (2,))], "nobody else will come to it"


def test_lost_work_goes_to_whoever_is_free_first():
    made = begin("uncoded", 2, 3)
    given_out(made)
    made.lost(0)
    assert given_out(made) == [(2, (0,))]
    made.lost(2)
    made.answered(1)
    assert given_out(made) == [(1, (0,))]


def test_rows_of_the_lost_are_computed_again_only_if_needed():
    made = begin("mds", 2, 4)
    assert [learner for learner, _ in given_out(made)] == [0, 1, 2, 3]
    made.lost(0)
    made.lost(1)
    made.answered(2)
    assert given_out(made) == [], "2 and 3 suffice"
    assert not made.done
    made.lost(3)
    (again,) = made.assign(0.0)
    assert again[0] == 2
    assert again[1].index in (0, 1, 3)
    made.answered(2)
    assert made.done


def test_a_learner_still_busy_gets_its_row_when_it_is_free():
    made = begin("cyclic:1", 2, 3, free=2)
    assert [learner for learner, _ in given_out(made)] == [0, 1]
    made.free(2)
    assert [learner for learner, _ in given_out(made)] == [2]


def test_which_answers_are_sums():
    assert not is_linear(parse_scheme("backup+fastest-first"))
    assert is_linear(parse_scheme("random-sparse"))
    made = begin("systematic", 2, 3)
    assert isinstance(made, Rows)
    assert [task.row for _, task in made.assign(0.0)][:2] == [(), ()]


def test_fastest_first_puts_the_unknown_among_the_ordinary():
    assert fastest_first(range(4), {0: 5.0, 1: 1.0, 2: 3.0}) == [1, 2, 3, 0]
    assert fastest_first(range(2), {}) == [0, 1]


@given(
    scheme=st.sampled_from(SCHEMES),
    num_agents=st.integers(2, 6),
    spare=st.integers(2, 5),
    events=st.lists(st.tuples(st.integers(0, 10), st.sampled_from(["answer", "answer", "die", "return"])), max_size=200),
)
def test_every_course_of_events_ends_once_the_living_answer(scheme, num_agents, spare, events):
    """Whoever dies and returns, nobody has two tasks at once, and if all that live go on answering the round ends."""
    num_learners = num_agents + spare
    made = begin(scheme, num_agents, num_learners)
    dead: set[int] = set()
    now = 0.0

    def hand_out() -> None:
        before = set(made.running)
        tasks = made.assign(now)
        assert not before & {learner for learner, _ in tasks}
        assert not dead & {learner for learner, _ in tasks}
        assert all(0 <= agent < num_agents for _, task in tasks for agent in task.agents)

    hand_out()
    for number, what in events:
        now += 0.3
        learner = number % num_learners
        if what == "answer" and learner in made.running and not made.done:
            made.answered(learner)
        elif what == "die" and learner not in dead and len(dead) < num_learners - 1:
            dead.add(learner)
            made.lost(learner)
        elif what == "return" and learner in dead:
            dead.remove(learner)
            made.free(learner)
        hand_out()
    for _ in range(200):
        if made.done:
            break
        now += 10.0
        hand_out()
        assert made.running, "somebody lives, and there is work left"
        made.answered(next(iter(made.running)))
    assert made.done


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_learner_of_fifteen_can_do_it_all(scheme):
    made = begin(scheme, 8, 15, free=1)
    for now in range(15):
        for learner, _ in made.assign(float(now)):
            made.answered(learner)
    assert made.done
