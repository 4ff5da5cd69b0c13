"""Pagers: an alert, its repeats and its end are one incident of the service.

Each alert of a message is an event of its own, under a key of route, topic and subject, so that the end of one machine's alert
leaves the others' open. Apprise's services that have incidents take the key under five names, and resolve by the type
"success" of their action "map". Opsgenie and Jira Service Management close by the ids of requests, which Apprise keeps only
in memory: they are closed by their own API, under the alias.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from hashlib import sha256
from typing import Any

from costguard.guard.alerts.alert import RESOLVED, Alert, Notification

MAP = "map"
KEY_FIELDS = ("dedup", "alias", "entity_id", "external_id", "thirdparty")
"""Apprise 2.2: PagerDuty, ilert, incident.io, FireHydrant, GoAlert, Squadcast; Opsgenie, Jira; Splunk; SIGNL4; PagerTree."""
NOTE_CHARS_MAX = 15_000
"""Of a note of Opsgenie (docs.opsgenie.com/docs/alert-api, "Close Alert", allows 25,000)."""


def has_incidents(service: Any) -> bool:  # noqa: ANN401 - Apprise's, which says no types
    """Return whether the service has incidents that one key opens and resolves."""
    return MAP in service.template_args.get("action", {}).get("values", ()) and bool(_list_key_fields(service))


def build_event(message: Notification, alert: Alert) -> Notification:
    """Return the message about `alert` alone, whose id is the key of its incident."""
    why_now = RESOLVED if alert.is_over else message.why_now
    key = sha256(chr(0).join((message.route, alert.topic, alert.subject)).encode("utf-8", "replace")).hexdigest()
    return replace(
        message, id=f"costguard-{key[:32]}", notices=(alert,), title=alert.what, severity=alert.severity, why_now=why_now
    )


def set_incident(service: Any, event: Notification) -> bool:  # noqa: ANN401 - see `has_incidents`
    """Let `service` mean the incident of `event`, which is one of `build_event`; return whether the event ends it."""
    service.action, service.request_rate_per_sec = MAP, 0
    for name in _list_key_fields(service):
        setattr(service, name, event.id)
    return bool(event.notices) and event.notices[0].is_over


def close_alert(service: Any, event: Notification, note: str) -> bool | None:  # noqa: ANN401 - see `has_incidents`
    """Close the alert of `event` at Opsgenie or Jira; return whether that was accepted. None: Apprise itself can do it."""
    if not hasattr(service, "alias"):
        return None
    import requests

    module = sys.modules[type(service).__module__]
    places = next(value for name, value in vars(module).items() if name.endswith("_API_LOOKUP"))
    answer = requests.post(
        f"{places[service.region_name]}/{event.id}/close",
        params={"identifierType": "alias"},
        json={"source": service.app_id, "note": note[:NOTE_CHARS_MAX]},
        headers={"Authorization": f"GenieKey {service.apikey}", "User-Agent": service.app_id},
        verify=service.verify_certificate,
        timeout=service.request_timeout,
        allow_redirects=False,
    )
    return bool(answer.ok)


def _list_key_fields(service: Any) -> list[str]:  # noqa: ANN401 - see `has_incidents`
    return [name for name in KEY_FIELDS if hasattr(service, name)]
