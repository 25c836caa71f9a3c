"""Whatever clients, timers and writes do in whatever order, a classic group keeps its promises."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.groups.effects import GroupState, JoinAnswer, Persist, TimerKind
from diskless_core.groups.settings import GroupSettings
from diskless_core.protocol.errors import ErrorCode
from tests.unit.groups.script import Script

PROTOCOLS = [{"range": b"r"}, {"range": b"r", "sticky": b"s"}, {"sticky": b"s", "range": b"other"}]


class Chaos:
    """Plays random clients against one group and checks it after every step."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.script = Script(GroupSettings(initial_rebalance_delay_ms=3_000, max_size=4))
        self.asked: dict[int, str] = {}
        self.generations = [0]

    @property
    def roster(self):
        return self.script.group.roster

    def someone(self) -> str:
        known = [member.member_id for member in self.roster] + sorted(self.roster.expected)
        return self.random.choice([*known, *known, "who"])

    def instance_of(self, member_id: str) -> str | None:
        member = self.roster.get(member_id)
        if self.random.random() < 0.05:
            return "i0"
        return member.instance_id if member is not None else None

    def step(self) -> None:
        actions = [
            self.join,
            self.join,
            self.rejoin,
            self.sync,
            self.sync,
            self.beat,
            self.leave,
            self.store,
            self.time,
        ]
        self.random.choice(actions)()
        self.check()

    def join(self) -> None:
        instance = self.random.choice([None, None, "i0", "i1"])
        protocols = self.random.choice(PROTOCOLS)
        needs_id = self.random.random() < 0.5
        self.script.join(instance=instance, protocols=protocols, needs_id=needs_id, can_skip=self.random.random() < 0.5)

    def rejoin(self) -> None:
        member_id = self.someone()
        self.script.join(member_id, instance=self.instance_of(member_id), protocols=self.random.choice(PROTOCOLS))

    def sync(self) -> None:
        member_id = self.someone()
        group = self.script.group
        generation = group.generation - (self.random.random() < 0.1)
        assign = {one.member_id: f"{generation}:{one.member_id}".encode() for one in self.roster}
        self.script.sync(
            member_id,
            generation,
            instance=self.instance_of(member_id),
            assign=assign if member_id == self.roster.leader else None,
        )

    def beat(self) -> None:
        member_id = self.someone()
        check = self.random.choice([self.script.heartbeat, self.script.commit])
        error = check(member_id, self.script.group.generation, self.instance_of(member_id))
        assert (
            error is ErrorCode.NONE
            or member_id not in self.roster
            or error
            in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.UNKNOWN_MEMBER_ID,
            )
        )

    def leave(self) -> None:
        if self.random.random() < 0.3:
            self.script.leave(*{self.someone() for _ in range(self.random.randrange(1, 3))})

    def store(self) -> None:
        self.script.store()

    def time(self) -> None:
        if self.script.timers:
            self.script.expire(self.random.choice(sorted(self.script.timers, key=str)))

    def check(self) -> None:
        script, group, roster = self.script, self.script.group, self.roster
        timers = script.timers
        self.generations.append(group.generation)
        assert self.generations[-2] <= self.generations[-1], "a generation never goes back"
        assert (group.state is GroupState.EMPTY) == (len(roster) == 0 and not self.is_preparing), group.state
        assert (roster.leader is None) == (len(roster) == 0)
        assert roster.leader is None or roster.leader in roster
        sessions = {timer.member_id for timer in timers if timer.kind is TimerKind.SESSION}
        present = {member.member_id for member in roster} | roster.expected
        assert sessions <= present, "nobody who is gone has a timer"
        for member in roster:
            assert member.member_id in sessions or member.keeps_session, "everybody can time out"
        assert any(timer.kind is TimerKind.JOIN for timer in timers) == self.is_preparing, "a rebalance ends"
        if group.state is not GroupState.PREPARING_REBALANCE and len(roster):
            assert all(group.protocol in dict(member.protocols) for member in roster)
        if group.state is GroupState.STABLE:
            answered = {one.assignment.split(b":")[0] for one in roster if one.assignment}
            assert answered <= {str(group.generation).encode()}, "all have assignments of one generation"

    @property
    def is_preparing(self) -> bool:
        return self.script.state is GroupState.PREPARING_REBALANCE

    def finish(self) -> None:
        self.script.store()
        self.script.group.close(ErrorCode.NOT_COORDINATOR)
        self.script.settle()
        assert self.script.timers == {}


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32), steps=st.integers(min_value=1, max_value=120))
def test_a_group_keeps_its_promises_in_any_order_of_events(seed, steps):
    chaos = Chaos(seed)
    for _ in range(steps):
        chaos.step()
    chaos.finish()
    requests = next(chaos.script._ids)
    assert set(chaos.script.answers) == set(range(1, requests)), "every request is answered, and once"
    for answer in chaos.script.answers.values():
        if isinstance(answer, JoinAnswer) and answer.error is ErrorCode.NONE:
            assert answer.member_id
            assert not answer.members or answer.leader == answer.member_id


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_what_is_stored_last_is_what_a_restarted_group_has(seed):
    chaos = Chaos(seed)
    for _ in range(60):
        chaos.step()
    chaos.script.store()
    if not chaos.script.stored or chaos.script.state is not GroupState.STABLE:
        return
    last = chaos.script.stored[-1]
    restored = type(chaos.script.group).restored("g", last, chaos.script.settings)
    assert restored.generation == chaos.script.group.generation
    assert {m.member_id: m.assignment for m in restored.roster} == {
        m.member_id: m.assignment for m in chaos.script.group.roster
    }
    assert restored.roster.leader == chaos.script.group.roster.leader
    assert not any(isinstance(effect, Persist) for effect in restored.take_effects())
