"""Messages as CloudEvents 1.0, whose data is Flux's Event. Pure.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md, its HTTP binding and its JSON format
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.notifications.forms.posts import bearer, posted
from controller.notifications.messages import event_json

if TYPE_CHECKING:
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Post, Target


def structured(message: Message, target: Target) -> Post:
    """All of it in the body."""
    data = event_json(message, target.namespace, target.instance)
    content = {**_attributes(message, target), "datacontenttype": "application/json", "data": data}
    kind = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    return posted(target.address, message, content, **bearer(target), **kind)


def binary(message: Message, target: Target) -> Post:
    """The attributes as headers, the data as the body."""
    data = event_json(message, target.namespace, target.instance)
    headers = {f"ce-{name}": text for name, text in _attributes(message, target).items()}
    return posted(target.address, message, data, **bearer(target), **headers)


def _attributes(message: Message, target: Target) -> dict[str, str]:
    """All are ASCII, since names of objects and reasons are; `id` is the same each time that it is sent."""
    return {
        "specversion": "1.0",
        "id": message.key,
        "source": f"/namespaces/{target.namespace}/{message.kind.lower()}s/{message.name}",
        "type": f"dev.flagstaff.{message.kind}.{message.reason}",
        "subject": f"{message.kind}/{message.name}",
        "time": message.time,
    }
