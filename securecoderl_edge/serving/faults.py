"""Answers to requests that cannot be served, in OpenAI's error format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from securecoderl_edge.text import did_you_mean


class Fault(Exception):
    """A request is refused or has failed.

    Args:
        status: of the HTTP response.
        message: what is wrong, and the fix.
        param: the field of the body that is wrong.
        code: one word for programs, such as ``model_not_found``.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    @property
    def kind(self) -> str:
        """OpenAI's ``type`` of an error."""
        kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
        return kinds.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    def to_record(self) -> dict[str, Any]:
        """The JSON object of the response."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def invalid(param: str | None, message: str, *, code: str | None = None) -> Fault:
    """The fault of a body with a wrong field; ``message`` continues the field's name."""
    return Fault(400, f"{param} {message}" if param else message, param=param, code=code)


def unknown_field(name: str, known: Iterable[str]) -> Fault:
    """The fault of a body with a field that is none of the known ones."""
    name = name[:100]
    fix = did_you_mean(name, known).strip() or "Leave it out"
    return Fault(400, f"unknown field {name!r}. {fix}", param=name, code="unknown_parameter")


def too_many(running: int) -> Fault:
    """The fault of a request beyond the limit; the response has ``Retry-After``."""
    return Fault(429, f"{running} requests are in progress. Try again later", code="too_many_requests")
