"""What becomes of a broker that sends a heartbeat."""

from __future__ import annotations

import uuid
from dataclasses import replace

from diskless_core.cluster.membership.heartbeats import Beat, Decision, Surroundings, decide
from diskless_core.cluster.membership.model import BrokerSpec, Registration
from diskless_core.cluster.membership.sessions import Health

SPEC = BrokerSpec(node_id=1, incarnation_id=uuid.UUID(int=9), listeners=(), rack=None, features={})
FENCED = Registration(spec=SPEC, epoch=1, is_fenced=True)
LIVE = replace(FENCED, is_fenced=False)
READY = Beat(node_id=1, epoch=1, applied_offset=10, want_fence=False, want_shut_down=False)
LEAVING = replace(READY, want_shut_down=True)
ILL = replace(READY, health=Health(log_is_ok=False))
AROUND = Surroundings(registered_offset=10, leads=False, others_are_live=True, somebody_is_well=True)


def test_a_fenced_broker_is_unfenced_when_it_has_read_its_own_registration():
    assert decide(READY, FENCED, AROUND).is_fenced is False
    behind = decide(replace(READY, applied_offset=9), FENCED, AROUND)
    assert (behind.is_caught_up, behind.is_fenced) == (False, None)
    assert behind.reason == "it has not read its own registration yet"


def test_a_broker_that_wants_to_be_fenced_is():
    assert decide(replace(READY, want_fence=True), LIVE, AROUND).is_fenced is True


def test_a_live_broker_stays_what_it_is():
    assert decide(READY, LIVE, AROUND) == Decision(is_caught_up=True)
    assert decide(ILL, LIVE, AROUND) == Decision(is_caught_up=True)


def test_a_broker_that_cannot_work_stays_fenced_unless_nobody_can():
    kept = decide(ILL, FENCED, AROUND)
    assert kept.is_fenced is None
    assert kept.reason == "its coordinator log does not answer it"
    assert decide(ILL, FENCED, replace(AROUND, somebody_is_well=False)).is_fenced is False


def test_a_broker_may_stop_when_it_leads_nothing_or_nobody_could_take_over():
    leads = replace(AROUND, leads=True)
    assert decide(LEAVING, LIVE, leads) == Decision(is_caught_up=True, shuts_down=True)
    gone = Decision(is_caught_up=True, is_fenced=True, shuts_down=True, may_stop=True)
    assert decide(LEAVING, LIVE, AROUND) == gone
    assert decide(LEAVING, LIVE, replace(leads, others_are_live=False)) == gone


def test_a_broker_that_stops_is_live_until_its_clients_have_gone_to_others():
    stays = Decision(is_caught_up=True, shuts_down=True)
    gone = replace(stays, is_fenced=True, may_stop=True)
    has_clients = replace(LEAVING, has_clients=True)
    assert decide(has_clients, LIVE, AROUND) == stays
    assert decide(has_clients, LIVE, replace(AROUND, others_are_live=False)) == gone
    assert decide(replace(READY, has_clients=True), LIVE, AROUND) == Decision(is_caught_up=True)


def test_a_fenced_broker_may_stop_at_once():
    assert decide(LEAVING, FENCED, replace(AROUND, leads=True)).may_stop
