"""Hooks as the settings name them: what asks those that are urls, signed as the webhook channel is."""

from __future__ import annotations

from functools import partial

from costguard.errors import InputError
from costguard.guard.hook import FAILED, SUCCEEDED, HookEnd, clip_output
from costguard.notifiers import Channel
from costguard.services.act.hooks import HookCall, HookRunner
from costguard.services.telling import format_channel_name
from costguard.settings import Settings, expand_path
from costguard.settings.addresses import resolve_address
from costguard.system.clock import Clock

HTTP_OK, HTTP_REDIRECT = 200, 300


def build_hook_runner(settings: Settings, clock: Clock) -> HookRunner:
    """What runs the hooks of the settings; one a process."""
    return HookRunner(post=partial(_post_hook, settings, clock))


def _post_hook(settings: Settings, clock: Clock, call: HookCall) -> HookEnd:
    """Ask the url of a hook once. Where its address is kept is read now: it may have changed."""
    from costguard.notifiers.webhook import post_webhook

    try:
        address = resolve_address(call.hook.url, f"hook {call.hook.name}.url")
        secret = resolve_address(settings.signed_with, "notify.signed_with") if settings.signed_with else ""
    except InputError as error:
        return HookEnd(state=FAILED, why=error.what)
    ca_file = expand_path(settings.network.ca_file) if settings.network.ca_file else None
    channel = Channel(
        name=format_channel_name(call.hook.url),
        clock=clock,
        address=address,
        secret=secret,
        ca_file=ca_file,
        within_s=call.within_s,
    )
    answer = post_webhook(call.id, call.build_body(), channel)
    output = clip_output(answer.said.decode(errors="replace"))
    if answer.status is not None and HTTP_OK <= answer.status < HTTP_REDIRECT:
        return HookEnd(state=SUCCEEDED, status=answer.status, output=output)
    why = answer.why or f"it answered {answer.status}"
    return HookEnd(state=FAILED, status=answer.status, why=why, output=output)
