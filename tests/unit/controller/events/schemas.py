"""What each service documents of the requests that it takes, as JSON Schemas: see the links in
chat_services.py and incident_services.py. A field that the page does not name is an error.
"""

from __future__ import annotations

from typing import Any, Final


def record(needed: str, **properties: Any) -> dict[str, Any]:
    """An object of just these fields, of which those named in `needed` must be there."""
    return {
        "type": "object", "required": needed.split(), "additionalProperties": False, "properties": properties,
    }  # fmt: skip


def text(most: int, least: int = 1) -> dict[str, Any]:
    return {"type": "string", "minLength": least, "maxLength": most}


def several(items: Any, most: int = 100) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


MOMENT: Final = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_CARD: Final = record(
    "type version body",
    **{"$schema": {"const": "http://adaptivecards.io/schemas/adaptive-card.json"}},
    type={"const": "AdaptiveCard"}, version={"enum": ["1.2", "1.3", "1.4"]},
    body=several({
        "oneOf": [
            record(
                "type text", type={"const": "TextBlock"}, text=text(8_000), wrap={"type": "boolean"},
                size={"enum": ["Small", "Default", "Medium", "Large", "ExtraLarge"]},
                color={"enum": ["Default", "Dark", "Light", "Accent", "Good", "Warning", "Attention"]},
                fontType={"enum": ["Default", "Monospace"]},
            ),
            record(
                "type facts", type={"const": "FactSet"},
                facts=several(record("title value", title=text(80), value=text(2_000))),
            ),
        ]
    }),
)  # fmt: skip
_WIDGET: Final = {
    "oneOf": [
        record("textParagraph", textParagraph=record("text", text=text(8_000))),
        record(
            "decoratedText",
            decoratedText=record("text", topLabel=text(80), text=text(2_000), wrapText={"type": "boolean"}),
        ),
    ]
}
_DETAILS: Final = {"type": "object"}
_PAYLOAD: Final = {
    "summary": text(1_024), "source": text(255), "timestamp": MOMENT, "custom_details": _DETAILS,
}  # fmt: skip

SCHEMAS: Final[dict[str, Any]] = {
    "generic": record(
        "involvedObject severity timestamp message reason reportingController",
        involvedObject=record(
            "kind namespace name", apiVersion=text(253), kind=text(63), namespace=text(63), name=text(253),
            uid=text(63),
        ),
        severity={"enum": ["trace", "info", "error"]}, timestamp=MOMENT, message=text(39_000),
        reason=text(255), metadata=TEXTS, reportingController=text(253), reportingInstance=text(253),
    ),
    "discord": record(
        "embeds", username=text(80), allowed_mentions={"const": {"parse": []}},
        embeds=several(record(
            "description", title=text(256), description=text(4_096), timestamp=MOMENT,
            color={"type": "integer", "minimum": 0, "maximum": 0xFFFFFF},
            fields=several(
                record("name value", name=text(256), value=text(1_024), inline={"type": "boolean"}), 25
            ),
        ), 10),
    ),
    "msteams": record(
        "type attachments", type={"const": "message"},
        attachments=several(record(
            "contentType content", content=_CARD,
            contentType={"const": "application/vnd.microsoft.card.adaptive"},
        )),
    ),
    "googlechat": record(
        "cardsV2",
        cardsV2=several(record(
            "cardId card", cardId=text(64),
            card=record(
                "header sections", header=record("title", title=text(400), subtitle=text(400)),
                sections=several(record("widgets", widgets=several(_WIDGET))),
            ),
        )),
    ),
    "pagerduty": {
        "oneOf": [
            record(
                "routing_key event_action dedup_key payload", routing_key=text(32), dedup_key=text(255),
                client=text(255), event_action={"enum": ["trigger", "acknowledge", "resolve"]},
                payload=record(
                    "summary source severity", **_PAYLOAD, component=text(255), **{"class": text(255)},
                    severity={"enum": ["critical", "error", "warning", "info"]},
                ),
            ),
            record("routing_key payload", routing_key=text(32), payload=record("summary", **_PAYLOAD)),
        ]
    },
    "opsgenie": {
        "oneOf": [
            record(
                "message", message=text(130), alias=text(512), description=text(15_000), details=TEXTS,
                entity=text(512), source=text(100), tags=several(text(50), 20),
                priority={"enum": ["P1", "P2", "P3", "P4", "P5"]},
            ),
            record("", source=text(100), note=text(25_000)),
        ]
    },
    "alertmanager": several(
        record("labels", labels=TEXTS, annotations=TEXTS, startsAt=MOMENT, endsAt=MOMENT)
    ),
    "grafana": record(
        "text", time={"type": "integer", "minimum": 10**12}, text=text(10_000), tags=several(text(400))
    ),
}  # fmt: skip
SCHEMAS["generic-hmac"] = SCHEMAS["generic"]
_PAGE: Final = {"type": "string", "pattern": "^https?://", "maxLength": 2_000}
_STATUS: Final = record(
    "state context description target_url",
    state={"enum": ["pending", "success", "failure", "error"]}, context=text(255), description=text(140),
    target_url=_PAGE,
)  # fmt: skip
COMMITS: Final[dict[str, Any]] = {
    "github": _STATUS,
    "gitea": _STATUS,
    "gitlab": record(
        "state context description target_url",
        state={"enum": ["pending", "running", "success", "failed", "canceled", "skipped"]},
        context=text(255), description=text(255), target_url=_PAGE,
    ),
    "bitbucket": record(
        "key state url",
        key=text(40), state={"enum": ["INPROGRESS", "SUCCESSFUL", "FAILED", "STOPPED"]},
        name=text(255), description=text(255), url=_PAGE,
    ),
    "azuredevops": record(
        "state context targetUrl", targetUrl=_PAGE,
        state={"enum": ["notSet", "notApplicable", "pending", "succeeded", "failed", "error"]},
        description=text(255), context=record("name", name=text(255), genre=text(255)),
    ),
}  # fmt: skip
"""Of statuses of commits: see the links in commits.py."""
SCHEMAS.update(COMMITS)
COMMENT: Final = record("body", body=text(65_536))
"""See the links in comments.py."""
SCHEMAS.update(
    dict.fromkeys(
        ("githubpullrequestcomment", "gitlabmergerequestcomment", "giteapullrequestcomment"), COMMENT
    )
)
_RAW: Final = record("content", content=record("raw", raw=text(32_768)))
SCHEMAS["bitbucketpullrequestcomment"] = _RAW
_FIRST: Final = record(
    "parentCommentId content commentType", parentCommentId={"const": 0}, content=text(150_000),
    commentType={"enum": [1, "text"]},
)  # fmt: skip
SCHEMAS["azuredevopspullrequestcomment"] = record(
    "comments status", comments={"type": "array", "minItems": 1, "maxItems": 1, "items": _FIRST},
    status={"enum": [1, 2, 3, 4, 5, 6]},
)  # fmt: skip
EDITS: Final[dict[str, Any]] = {"azuredevopspullrequestcomment": record("content", content=text(150_000))}
"""Where an edit is not what adds a comment."""
SCHEMAS["cloudevents"] = record(
    "id source specversion type",
    id=text(253), source={"type": "string", "format": "uri-reference", "minLength": 1}, type=text(253),
    specversion={"const": "1.0"}, subject=text(400), time=MOMENT,
    datacontenttype={"const": "application/json"}, data=SCHEMAS["generic"],
)  # fmt: skip
SCHEMAS["email"] = {
    **record(
        "From To Subject Date Message-ID text",
        **{"Message-ID": {"type": "string", "pattern": "^<[0-9a-f]{64}@flagstaff.dev>$"}},
        From=text(320), To=text(320), Subject=text(900), Date=text(40), text=text(10_000),
    ),
    "additionalProperties": {"type": "string", "maxLength": 76},
}  # fmt: skip
_MRKDWN: Final = record("type text", type={"const": "mrkdwn"}, text=text(3_000))
_FIELD: Final = record("type text", type={"const": "mrkdwn"}, text=text(2_000))
SCHEMAS["slack"] = record(
    "attachments", channel=text(80), username=text(80),
    attachments=several(record(
        "blocks", color={"type": "string", "pattern": "^#[0-9A-F]{6}$"}, fallback=text(4_000),
        blocks=several({
            "oneOf": [
                record("type text", type={"const": "section"}, text=_MRKDWN),
                record("type fields", type={"const": "section"}, fields=several(_FIELD, 10)),
            ]
        }, 50),
    ), 20),
)  # fmt: skip
